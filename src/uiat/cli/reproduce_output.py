"""The end of `uiat reproduce`: times, tables, figures, claims and the index, from what is finished."""

from functools import partial

from rich.console import Console

from uiat.cli.reproduce_job import Job
from uiat.progress import PatientConsole
from uiat.reproduce import scales
from uiat.reproduce.attempts import Attempts
from uiat.reproduce.claims import in_words, missing, overall
from uiat.reproduce.claims_output import write_claims
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.index import write_index
from uiat.reproduce.store import writing
from uiat.reproduce.table import Table


def say(line: str) -> None:
    """Say something that is no result."""
    PatientConsole(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)


def write(job: Job) -> list[str]:
    """Write what the finished runs give and say what was written; return what failed, which stops nothing else."""
    attempt = Attempts(job.out / "logs" / "output.txt", say)
    scale = scales.get(job.options.scale)
    with writing(job.out):
        time_methods(job, attempt)
        lines = []
        for experiment in job.experiments:
            paths = attempt(experiment.name, partial(experiment.write, job.out, job.seeds))
            if paths is not None:
                lines.append(f"{experiment.name}: {', '.join(path.name for path in paths) or 'nothing yet'}")
        found = attempt("claims", partial(write_claims, scale, job.out, job.seeds)) if job.claims else None
        attempt("index", lambda: write_index([build(scale) for build in EXPERIMENTS.values()], job.out))
    claims = [
        f"{claim.text} ({claim.where}): {in_words(overall(parts), missing(parts))}" for claim, parts in found or []
    ]
    for line in (*claims, *lines, f"written: {job.out}"):
        Console(highlight=False).print(line, markup=False, soft_wrap=True)
    return attempt.failed


def time_methods(job: Job, attempt: Attempts) -> None:
    """Time what tables ask for; in this process, when the workers are done: times want a machine of their own."""
    if job.options.only:
        return
    for experiment in job.experiments:
        for timing in experiment.timings if isinstance(experiment, Table) else ():
            what = f"times of {experiment.name} on {type(timing.model).__name__}"
            attempt(what, partial(timing.measure, job.out, job.device))
