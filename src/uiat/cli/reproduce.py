"""`uiat reproduce NAME…`: the paper's tables and figures, at a scale of one's choice."""

import os
from dataclasses import replace

import tyro

from uiat.cli.options import REGISTRY, check_folder
from uiat.cli.reproduce_job import Job, Reproduce, job_command, plan_job
from uiat.cli.reproduce_output import all_races, say, write
from uiat.engine.signals import StopSignal
from uiat.plugins import Import, import_words
from uiat.reproduce.attempts import Stopped
from uiat.reproduce.cell import Store
from uiat.reproduce.plan import print_plan
from uiat.reproduce.submit import read_parameters, submit
from uiat.reproduce.work import Worker
from uiat.reproduce.workers import CALL, run_workers, stop_with_parent

STOPPED = os.EX_TEMPFAIL
"""The exit code (75) of a `--cell` command that was stopped: no scheduler should take it for done."""


def main(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Run the command; worker processes get the imports, too."""
    with REGISTRY:
        options = tyro.cli(Reproduce, args=args, prog="uiat reproduce", description=Reproduce.__doc__)
    options = replace(options, imports=imports)
    job = plan_job(options)
    if options.plan:
        print_plan(job.cells, all_races(job), job.out, job.device, job_command(options))
        return 0
    check_folder(job.out)
    if options.submit is not None:
        return hand_over(job, options.submit)
    with StopSignal() as stop:
        if CALL in os.environ:
            return work(job, stop, os.environ[CALL])
        try:
            failures = make(job, stop, [*args, *import_words(imports)])
        except Stopped:
            say(f"stopped; all is saved in {job.out}, and the same command goes on")
            return STOPPED if options.cell else stop.exit_code
    if failures:
        say(f"{len(failures)} of {len(job.cells)} runs failed; the same command tries them again")
    unwritten = [] if options.cell else write(job)
    return 1 if failures or unwritten else 0


def make(job: Job, stop: StopSignal, args: list[str]) -> dict[str, str]:
    """Make all runs that are not finished, and return those that failed with their reasons."""
    worker = Worker(job.out, job.device, job.options.data_dir, stop, say)
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
        say(f"failed: {name}: {reason}")
    return failures


def hand_over(job: Job, cluster: str) -> int:
    """Submit a job for each run that is not finished; write the tables where the jobs were waited for."""
    parameters = read_parameters(job.options.submit_with)
    cells = [cell for cell in job.cells if not Store(cell, job.out).finished]
    jobs = submit(cells, job.out, job_command(job.options), cluster, parameters)
    for cell, submitted in zip(cells, jobs, strict=True):
        say(f"submitted as {submitted.job_id}: {cell.name}")
    if cluster == "slurm":
        say("when they are done, the same command without --submit writes the tables and figures")
        return 0
    unwritten = write(job)
    return 0 if not unwritten and all(Store(cell, job.out).finished for cell in cells) else 1


def work(job: Job, stop: StopSignal, call: str) -> int:
    """Be a worker process."""
    stop_with_parent()
    try:
        Worker(job.out, job.device, job.options.data_dir, stop, say, call).work_through(job.cells)
    except Stopped:
        say("stopped")
    return 0
