"""Output of `uiat reproduce`: the plan, benchmarks, tables, figures, claims and the index."""

import shlex
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from uiat.cli.reproduce_job import Job, job_command, plan_job
from uiat.errors import UserError
from uiat.progress import clock_time, print_message, print_result
from uiat.reproduce.budget import TYPICAL, cell_passes, seconds_left
from uiat.reproduce.cell import Store, held_here, merge, writing
from uiat.reproduce.claims import missing, overall, show_verdict, write_claims
from uiat.reproduce.claims_list import all_claims
from uiat.reproduce.measures import measure_key
from uiat.reproduce.output import mixed, write_index, write_table
from uiat.reproduce.runner import Stopped, error_line
from uiat.reproduce.table import Table, benchmarks_of
from uiat.reproduce.timing import TableBenchmark, wait_for_quiet

_T = TypeVar("_T")


def print_plan(job: Job) -> None:
    """Print the runs with their passes and times, the benchmarks, then the commands of runs that are not finished."""
    totals, commands = [0, 0, 0], []
    print_result(
        "run · label · state · millions of passes (forward, input-backward, weight-backward) · time left · measurements"
    )
    for cell in job.cells:
        store, passes = Store(cell, job.out), cell_passes(cell.config)
        left = seconds_left([cell], job.out, job.device)
        state = "finished" if store.finished else "begun" if store.run.config.exists() else "new"
        measures = " ".join(measure_key(measure) for measure in cell.measures) or "none"
        counts = " ".join(f"{count / 1e6:.2f}" for count in passes)
        print_result(
            f"{cell.name} · {_join_labels(cell.labels)} · {state} · {counts} · {clock_time(left)} · {measures}"
        )
        if state != "finished":
            totals = [total + count for total, count in zip(totals, passes, strict=True)]
            commands.append(shlex.join([*job_command(job.options), "--cell", cell.key]))
    counts = " ".join(f"{count / 1e6:.2f}" for count in totals)
    print_result(f"{len(job.cells)} runs, {len(commands)} to make · {counts} · {total_time(job)}")
    print_result(
        "Pass counts are exact and cover training only; times are estimated by timing each network on this machine."
    )
    print_result("At most: no attack succeeds early. Typically: AutoAttack's first attack leaves half of the images.")
    if job.seeds == 1 and job.scale.name != "smoke" and job.cells and not job.options.cell:
        more = plan_job(replace(job.options, seeds=3))
        print_result("One seed gives no verdict on the paper's claims; three seeds are the least for most of them.")
        print_result(f"--seeds 3: {len(more.cells)} runs · {total_time(more)}")
    if warning := mixed(job.cells, job.out):
        print_message(warning)
    for benchmark in all_benchmarks(job):
        duration = clock_time(benchmark.seconds if benchmark.is_left else 0.0)
        print_result(f"{benchmark.title} · {benchmark.state} · {duration} · {' '.join(benchmark.timing.methods)}")
    for line in commands:
        print_result(line)


def total_time(job: Job) -> str:
    """Write the time that is left, on a GPU in hours of one: the worst case and a typical one."""
    worst, typical = (seconds_left(job.cells, job.out, job.device, share) for share in (1.0, TYPICAL))
    if job.device.type == "cuda":
        return f"{worst / 3600:,.1f} GPU-hours at most, typically {typical / 3600:,.1f}"
    return f"{clock_time(worst)} at most, typically {clock_time(typical)}, for one process on {job.device}"


def _join_labels(labels: Sequence[str]) -> str:
    """Write labels briefly, the name of each table or figure once: `table1: UIAT; figS2: β = 1, γ = 0.9`."""
    places: dict[str, list[str]] = {}
    for label in labels:
        place, _, words = label.partition(": ")
        places.setdefault(place, []).append(words)
    return "; ".join(f"{place}: {', '.join(words)}" if any(words) else place for place, words in places.items())


@dataclass
class Attempts:
    """Calls functions one by one: a failure is printed as one line and stops no other call; tracebacks go to a file."""

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
            print_message(f"failed: {what}: {error_line(error)}")
            if not isinstance(error, UserError):
                self.log.parent.mkdir(parents=True, exist_ok=True)
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(f"{what}\n{traceback.format_exc()}\n")
            return None


def write_outputs(job: Job) -> list[str]:
    """Write the results of the finished runs, print what was written, and return what failed.

    Methods are timed first, in this process and when the workers are done: timing needs an otherwise idle machine.
    """
    attempt = Attempts(job.out / "logs" / "output.txt")
    benchmarks = _feasible(job)
    if benchmarks and held_here(job.out):
        with writing(job.out):
            _write_all(job, attempt)  # what is finished already: the wait may be long
        wait_for_quiet(job.out, print_message)
    with writing(job.out):
        for benchmark in benchmarks:
            attempt(benchmark.title, benchmark.run)
            if timing_warning := benchmark.timing.timing_warning(job.out):
                print_message(f"{benchmark.title}: {timing_warning}")
        lines = _write_all(job, attempt)
    if warning := mixed(merge(cell for each in job.all_experiments for cell in each.cells(job.seeds)), job.out):
        print_message(warning)
    for line in (*lines, f"written: {job.out}"):
        print_result(line)
    return attempt.failed


def all_benchmarks(job: Job) -> list[TableBenchmark]:
    """Return the benchmarks of the command; none with `--only`."""
    return [] if job.options.only else benchmarks_of(job.experiments, job.out, job.device, retime=job.options.retime)


def _feasible(job: Job) -> list[TableBenchmark]:
    """Return the unfinished benchmarks that can run here; print which need a GPU."""
    left = [benchmark for benchmark in all_benchmarks(job) if benchmark.is_left]
    for table in dict.fromkeys(benchmark.table for benchmark in left):
        slow = [benchmark.seconds for benchmark in left if benchmark.table == table and benchmark.wants_gpu]
        if slow:
            command = shlex.join(job_command(replace(job.options, names=(table,), out=str(job.out), device="cuda")))
            print_message(
                f"the times of {table} need a GPU: {len(slow)} of its benchmarks would take about "
                f"{clock_time(sum(slow))} here and are skipped; run `{command}` on a machine with a GPU"
            )
    return [benchmark for benchmark in left if not benchmark.wants_gpu]


def _write_all(job: Job, attempt: Attempts) -> list[str]:
    """Write every file, and return a line for each claim, table and figure."""
    lines = []
    for experiment in job.experiments:
        write = partial(write_table, experiment) if isinstance(experiment, Table) else experiment.write
        paths = attempt(experiment.name, partial(write, job.out, job.seeds))
        if paths is not None:
            lines.append(f"{experiment.name}: {', '.join(path.name for path in paths) or 'nothing yet'}")
    claims = partial(write_claims, all_claims(job.scale), job.scale, job.out, job.seeds)
    decided = attempt("claims", claims) if job.claims else None
    benchmarks = benchmarks_of(job.all_experiments, job.out, job.device)
    attempt("index", partial(write_index, job.all_experiments, benchmarks, job.out, job.seeds))
    verdicts = [(claim, show_verdict(overall(findings), missing(findings))) for claim, findings in decided or []]
    return [*(f"{claim.text} ({claim.where}): {verdict}" for claim, verdict in verdicts), *lines]
