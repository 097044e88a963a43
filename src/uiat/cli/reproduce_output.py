"""The end of `uiat reproduce`: times, tables, figures, claims and the index, from what is finished."""

import shlex
from dataclasses import replace
from functools import partial

from rich.console import Console

from uiat.cli.reproduce_job import Job, job_command
from uiat.progress import PipeSafeConsole, clock_time
from uiat.reproduce import scales
from uiat.reproduce.attempts import Attempts
from uiat.reproduce.cell import held_here, merge, writing
from uiat.reproduce.claims import in_words, missing, overall
from uiat.reproduce.claims_output import write_claims
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.index import mixed, write_index
from uiat.reproduce.races import Race, races_of, wait_for_quiet


def say(line: str) -> None:
    """Say something that is no result."""
    PipeSafeConsole(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)


def write(job: Job) -> list[str]:
    """Write what the finished runs give and say what was written; return what failed, which stops nothing else.

    Methods are timed first; in this process, when the workers are done: times want a machine of their own.
    """
    attempt = Attempts(job.out / "logs" / "output.txt", say)
    races = _possible(job)
    if races and held_here(job.out):
        with writing(job.out):
            _write_all(job, attempt)  # what there is, before a wait that may be long
        wait_for_quiet(job.out, say)
    with writing(job.out):
        for race in races:
            attempt(race.what, race.run)
            if doubt := race.timing.doubt(job.out):
                say(f"{race.what}: {doubt}")
        lines = _write_all(job, attempt)
    scale = scales.get(job.options.scale)
    everything = merge(cell for build in EXPERIMENTS.values() for cell in build(scale).cells(job.seeds))
    if warning := mixed(everything, job.out):
        say(warning)
    for line in (*lines, f"written: {job.out}"):
        Console(highlight=False).print(line, markup=False, soft_wrap=True)
    return attempt.failed


def all_races(job: Job) -> list[Race]:
    """Return what is timed for the command; with `--only`, nothing is."""
    return [] if job.options.only else races_of(job.experiments, job.out, job.device, anew=job.options.retime)


def _possible(job: Job) -> list[Race]:
    """Return the races that are left and can be run here; say which cannot, and where they can."""
    left = [race for race in all_races(job) if race.is_left]
    for table in dict.fromkeys(race.table for race in left):
        slow = [race.seconds for race in left if race.table == table and race.wants_gpu]
        if slow:
            command = shlex.join(job_command(replace(job.options, names=(table,), out=str(job.out), device="cuda")))
            say(
                f"the times of {table} want a GPU, {len(slow)} of its races would take about {clock_time(sum(slow))} "
                f"here and are left out: run `{command}` where there is one"
            )
    return [race for race in left if not race.wants_gpu]


def _write_all(job: Job, attempt: Attempts) -> list[str]:
    """Write every file, and return a line for each claim, table and figure."""
    scale, lines = scales.get(job.options.scale), []
    for experiment in job.experiments:
        paths = attempt(experiment.name, partial(experiment.write, job.out, job.seeds))
        if paths is not None:
            lines.append(f"{experiment.name}: {', '.join(path.name for path in paths) or 'nothing yet'}")
    found = attempt("claims", partial(write_claims, scale, job.out, job.seeds)) if job.claims else None
    attempt("index", lambda: write_index([build(scale) for build in EXPERIMENTS.values()], job.out, job.seeds))
    claims = [
        f"{claim.text} ({claim.where}): {in_words(overall(parts), missing(parts))}" for claim, parts in found or []
    ]
    return [*claims, *lines]
