"""`uiat reproduce NAME…`: the paper's tables and figures, at a scale of one's choice."""

import os

import tyro
from rich.console import Console

from uiat.cli.numbers import REGISTRY
from uiat.cli.reproduce_job import Job, Reproduce, job_command, settle
from uiat.engine.signals import StopSignal
from uiat.progress import PatientConsole
from uiat.reproduce import scales
from uiat.reproduce.claims import in_words, missing, overall
from uiat.reproduce.claims_output import write_claims
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.index import write_index
from uiat.reproduce.plan import print_plan
from uiat.reproduce.runner import Worker
from uiat.reproduce.store import Store, writing
from uiat.reproduce.submit import read_parameters, submit
from uiat.reproduce.table import Table
from uiat.reproduce.work import Stopped
from uiat.reproduce.workers import CALL, run_workers, stop_with_parent


def main(args: list[str]) -> int:
    """Run the command."""
    with REGISTRY:
        options = tyro.cli(Reproduce, args=args, prog="uiat reproduce", description=Reproduce.__doc__)
    job = settle(options)
    if options.plan:
        print_plan(job.cells, job.out, job.device, job_command(options))
        return 0
    if options.submit is not None:
        return hand_over(job, options.submit)
    with StopSignal() as stop:
        if CALL in os.environ:
            return work(job, stop, os.environ[CALL])
        try:
            failures = make(job, stop, args)
        except Stopped:
            _say(f"stopped; all is saved in {job.out}, and the same command goes on")
            return 0
    if failures:
        _say(f"{len(failures)} of {len(job.cells)} runs failed; the same command tries them again")
    if not options.cell:
        write(job)
    return 1 if failures else 0


def make(job: Job, stop: StopSignal, args: list[str]) -> dict[str, str]:
    """Make all runs that are not finished, and return those that failed with their reasons."""
    worker = Worker(job.out, job.device, job.options.data_dir, stop, _say)
    jobs = job.options.jobs
    if jobs is None:
        jobs = 0 if job.options.cell else 1 if job.device.type == "cuda" else min(2, os.cpu_count() or 1)
    if not worker.left(job.cells):
        return {}
    if jobs == 0:
        worker.work_through(job.cells)
    else:
        run_workers(args, jobs, job.cells, job.out, job.device, stop, worker.call)
    failures = worker.failures(job.cells)
    lost = [store.path.name for store in worker.left(job.cells)]
    failures |= dict.fromkeys(lost, f"its worker ended before it did, see {job.out / 'logs'}")
    for name, reason in failures.items() if jobs else ():  # what fails in this process has said so itself
        _say(f"failed: {name}: {reason}")
    return failures


def hand_over(job: Job, cluster: str) -> int:
    """Submit a job for each run that is not finished; write the tables where the jobs were waited for."""
    parameters = read_parameters(job.options.submit_with)
    cells = [cell for cell in job.cells if not Store(cell, job.out).finished]
    jobs = submit(cells, job.out, job_command(job.options), cluster, parameters)
    for cell, submitted in zip(cells, jobs, strict=True):
        _say(f"submitted as {submitted.job_id}: {cell.name}")
    if cluster == "slurm":
        _say("when they are done, the same command without --submit writes the tables and figures")
        return 0
    write(job)
    return 0 if all(Store(cell, job.out).finished for cell in cells) else 1


def work(job: Job, stop: StopSignal, call: str) -> int:
    """Be a worker process."""
    stop_with_parent()
    try:
        Worker(job.out, job.device, job.options.data_dir, stop, _say, call).work_through(job.cells)
    except Stopped:
        _say("stopped")
    return 0


def time_methods(job: Job) -> None:
    """Time what tables ask for; in this process, when the workers are done: times want a machine of their own."""
    if job.options.only:
        return
    for experiment in job.experiments:
        for timing in experiment.timings if isinstance(experiment, Table) else ():
            timing.measure(job.out, job.device)


def write(job: Job) -> None:
    """Write what the finished runs give, and say what was written."""
    scale = scales.get(job.options.scale)
    with writing(job.out):
        time_methods(job)
        written = {experiment.name: experiment.write(job.out, job.seeds) for experiment in job.experiments}
        found = write_claims(scale, job.out, job.seeds) if job.claims else []
        write_index([build(scale) for build in EXPERIMENTS.values()], job.out)
    lines = [f"{claim.text} ({claim.where}): {in_words(overall(parts), missing(parts))}" for claim, parts in found]
    lines += [f"{name}: {', '.join(path.name for path in paths) or 'nothing yet'}" for name, paths in written.items()]
    for line in (*lines, f"written: {job.out}"):
        Console(highlight=False).print(line, markup=False, soft_wrap=True)


def _say(line: str) -> None:
    PatientConsole(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)
