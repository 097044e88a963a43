"""What `uiat reproduce` prints and writes: the plan; and times, tables, figures, claims and the index."""

import shlex
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from uiat.cli.reproduce_job import Job, job_command, plan_job
from uiat.errors import UserError
from uiat.progress import PipeSafeConsole, clock_time
from uiat.reproduce.budget import TYPICAL, seconds_left, training_passes
from uiat.reproduce.cell import Store, held_here, merge, writing
from uiat.reproduce.claims import missing, overall, show_verdict, write_claims
from uiat.reproduce.claims_list import all_claims
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.measures import measure_key
from uiat.reproduce.output import mixed, write_index, write_table
from uiat.reproduce.runner import Stopped, in_words
from uiat.reproduce.table import Table, races_of
from uiat.reproduce.timing import TableRace, wait_for_quiet

_T = TypeVar("_T")


def print_message(line: str) -> None:
    """Print a message that is no result, on stderr."""
    PipeSafeConsole(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)


def print_result(line: str) -> None:
    """Print a result on stdout."""
    PipeSafeConsole(highlight=False).print(line, markup=False, soft_wrap=True)


def print_plan(job: Job) -> None:
    """Print the runs with their passes and times, the races, then the commands of runs that are not finished."""
    totals, commands = [0, 0, 0], []
    print_result(
        "run · what it is · state · millions of passes (forward, input-backward, weight-backward) · time left · "
        "measurements"
    )
    for cell in job.cells:
        store, passes = Store(cell, job.out), training_passes(cell.config)
        left = seconds_left([cell], job.out, job.device)
        state = "finished" if store.finished else "begun" if store.run.config.exists() else "new"
        measures = " ".join(measure_key(measure) for measure in cell.measures) or "none"
        counts = " ".join(f"{count / 1e6:.2f}" for count in passes)
        print_result(
            f"{cell.name} · {_labels_in_words(cell.labels)} · {state} · {counts} · {clock_time(left)} · {measures}"
        )
        if state != "finished":
            totals = [total + count for total, count in zip(totals, passes, strict=True)]
            commands.append(shlex.join([*job_command(job.options), "--cell", cell.key]))
    counts = " ".join(f"{count / 1e6:.2f}" for count in totals)
    print_result(f"{len(job.cells)} runs, {len(commands)} to make · {counts} · {total_time(job)}")
    print_result(
        "Passes are exact and of the training alone; times are estimated from a timing of each network on this machine."
    )
    print_result(
        "At most: no attack succeeds early. Typically: AutoAttack's first attack leaves half of the images to others."
    )
    if job.seeds == 1 and job.scale.name != "smoke" and job.cells and not job.options.cell:
        more = plan_job(replace(job.options, seeds=3))
        print_result("One seed gives no verdict on the paper's claims; three seeds are the least for most of them.")
        print_result(f"--seeds 3: {len(more.cells)} runs · {total_time(more)}")
    if warning := mixed(job.cells, job.out):
        print_message(warning)
    for race in all_races(job):
        duration = clock_time(race.seconds if race.is_left else 0.0)
        print_result(f"{race.title} · {race.state} · {duration} · {' '.join(race.timing.methods)}")
    for line in commands:
        print_result(line)


def total_time(job: Job) -> str:
    """Write the time that is left: the worst case and a typical one."""
    worst, typical = (seconds_left(job.cells, job.out, job.device, share) for share in (1.0, TYPICAL))
    return f"{clock_time(worst)} at most, typically {clock_time(typical)}, for one process on {job.device}"


def _labels_in_words(labels: Sequence[str]) -> str:
    """Write labels briefly, the name of each table or figure once: `table1: UIAT; figS2: β = 1, γ = 0.9`."""
    places: dict[str, list[str]] = {}
    for label in labels:
        place, _, words = label.partition(": ")
        places.setdefault(place, []).append(words)
    return "; ".join(f"{place}: {', '.join(words)}" if any(words) else place for place, words in places.items())


@dataclass
class Attempts:
    """Calls functions one by one: a failure is printed as one line, and the rest goes on; tracebacks go to a file."""

    log: Path
    failed: list[str] = field(default_factory=list)

    def __call__(self, what: str, act: Callable[[], _T]) -> _T | None:
        """Return what `act` returns, or `None` if it fails."""
        try:
            return act()
        except Stopped:
            raise
        except Exception as error:
            self.failed.append(what)
            print_message(f"failed: {what}: {in_words(error)}")
            if not isinstance(error, UserError):
                self.log.parent.mkdir(parents=True, exist_ok=True)
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(f"{what}\n{traceback.format_exc()}\n")
            return None


def write_outputs(job: Job) -> list[str]:
    """Write the results of the finished runs, print what was written, and return what failed.

    Methods are timed first, in this process and when the workers are done: times want a machine of their own.
    """
    attempt = Attempts(job.out / "logs" / "output.txt")
    races = _possible(job)
    if races and held_here(job.out):
        with writing(job.out):
            _write_all(job, attempt)  # what there is, before a wait that may be long
        wait_for_quiet(job.out, print_message)
    with writing(job.out):
        for race in races:
            attempt(race.title, race.run)
            if timing_warning := race.timing.timing_warning(job.out):
                print_message(f"{race.title}: {timing_warning}")
        lines = _write_all(job, attempt)
    everything = merge(cell for build in EXPERIMENTS.values() for cell in build(job.scale).cells(job.seeds))
    if warning := mixed(everything, job.out):
        print_message(warning)
    for line in (*lines, f"written: {job.out}"):
        print_result(line)
    return attempt.failed


def all_races(job: Job) -> list[TableRace]:
    """Return what is timed for the command; with `--only`, nothing is."""
    return [] if job.options.only else races_of(job.experiments, job.out, job.device, anew=job.options.retime)


def _possible(job: Job) -> list[TableRace]:
    """Return the races that are left and can be run here; say which cannot, and where they can."""
    left = [race for race in all_races(job) if race.is_left]
    for table in dict.fromkeys(race.table for race in left):
        slow = [race.seconds for race in left if race.table == table and race.wants_gpu]
        if slow:
            command = shlex.join(job_command(replace(job.options, names=(table,), out=str(job.out), device="cuda")))
            print_message(
                f"the times of {table} want a GPU, {len(slow)} of its races would take about {clock_time(sum(slow))} "
                f"here and are left out: run `{command}` where there is one"
            )
    return [race for race in left if not race.wants_gpu]


def _write_all(job: Job, attempt: Attempts) -> list[str]:
    """Write every file, and return a line for each claim, table and figure."""
    scale, lines = job.scale, []
    for experiment in job.experiments:
        write = partial(write_table, experiment) if isinstance(experiment, Table) else experiment.write
        paths = attempt(experiment.name, partial(write, job.out, job.seeds))
        if paths is not None:
            lines.append(f"{experiment.name}: {', '.join(path.name for path in paths) or 'nothing yet'}")
    claims = partial(write_claims, all_claims(scale), scale, job.out, job.seeds)
    decided = attempt("claims", claims) if job.claims else None
    everything = [build(scale) for build in EXPERIMENTS.values()]
    races = races_of(everything, job.out, job.device)
    attempt("index", partial(write_index, everything, races, job.out, job.seeds))
    verdicts = [(claim, show_verdict(overall(findings), missing(findings))) for claim, findings in decided or []]
    return [*(f"{claim.text} ({claim.where}): {verdict}" for claim, verdict in verdicts), *lines]
