"""`uiat reproduce NAME…`: the paper's tables and figures, at the scale `smoke`, `cpu` or `paper`."""

import os
from dataclasses import replace
from pathlib import Path

from uiat.cli.options import parse_options, suggest
from uiat.cli.output_paths import check_folder
from uiat.cli.reproduce_job import CLAIMS, Job, Reproduce, job_command, plan_job
from uiat.cli.reproduce_output import print_plan, write_outputs
from uiat.engine.signals import StopSignal
from uiat.plugins import Import, import_words
from uiat.progress import print_message
from uiat.reproduce.cell import Store
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.runner import Runner, Stopped
from uiat.reproduce.workers import PLAN, read_plan, run_workers, submit, worker_gpus

EXAMPLES = ("uiat reproduce table1 --scale cpu --plan", "uiat reproduce claims --scale cpu")
MOST_USED = ("--scale", "--seeds", "--only", "--plan", "--out", "--jobs", "--device", "--data-dir")
STOPPED = os.EX_TEMPFAIL
"""The exit code (75) of a `--cell` command that was stopped: no scheduler should take it for done."""


def main(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Run the command; a worker process, which gets the imports, too, makes the runs that its parent has planned."""
    if PLAN in os.environ:
        return work(Path(os.environ[PLAN]))
    names = f"Tables and figures: {', '.join(EXPERIMENTS)}."
    options = parse_options(Reproduce, args, "uiat reproduce NAME…", EXAMPLES, about=names, most_used=MOST_USED)
    options = replace(options, imports=imports)
    job = plan_job(options)
    if options.plan:
        print_plan(job)
        return 0
    check_folder(job.out)
    if options.submit == "slurm":
        return submit_jobs(job)
    with StopSignal() as stop:
        try:
            failures = make(job, stop)
            while not (failures or options.cell) and (later := plan_job(options)).cells != job.cells:
                job = later  # finished runs of a selection decide what follows
                failures = make(job, stop)
        except Stopped:
            print_message(f"stopped; all progress is saved in {job.out}: run the same command to resume")
            return STOPPED if options.cell else stop.exit_code
    if failures:
        print_message(f"{len(failures)} of {len(job.cells)} runs failed; run the same command to retry them")
    unwritten = [] if options.cell else write_outputs(job)
    if not (failures or unwritten):
        suggest("done; next:", *next_command(job))
    return 1 if failures or unwritten else 0


def next_command(job: Job) -> list[str]:
    """Return the next command: the tables after single runs, then the claims, then a report."""
    if job.options.cell:
        return job_command(job.options)
    if not job.claims:
        return job_command(replace(job.options, names=(CLAIMS,)))
    if not any(job.out.glob("runs/*")):
        return job_command(replace(job.options, names=("all",)))
    return ["uiat", "report", str(job.out)]


def make(job: Job, stop: StopSignal) -> dict[str, str]:
    """Make all runs that are not finished, and return those that failed with their reasons."""
    runner = Runner(job.out, job.device, job.options.data_dir, stop, print_message)
    jobs = job.options.jobs
    if job.options.submit == "debug" or (jobs is None and job.options.cell):
        jobs = 0
    elif jobs is None:
        jobs = max(1, len(worker_gpus(job.device))) if job.device.type == "cuda" else min(2, os.cpu_count() or 1)
    if not runner.left(job.cells):
        return {}
    if jobs == 0:
        runner.make_all(job.cells)
    else:
        run_workers(runner, job.cells, jobs, import_words(job.options.imports))
    failures = runner.failures(job.cells)
    lost = [store.path.name for store in runner.left(job.cells)]
    failures |= dict.fromkeys(lost, f"its worker exited before it was finished; see {job.out / 'logs'}")
    for name, reason in failures.items() if jobs else ():  # a failure in this process was printed already
        print_message(f"failed: {name}: {reason}")
    return failures


def submit_jobs(job: Job) -> int:
    """Submit a job of Slurm for each run that is not finished."""
    cells = [cell for cell in job.cells if not Store(cell, job.out).finished]
    names = submit(cells, job.out, job_command(job.options), job.options.submit_with)
    for cell, name in zip(cells, names, strict=True):
        print_message(f"submitted as {name}: {cell.name}")
    print_message("when they are finished, run the same command without --submit to write the tables and figures")
    return 0


def work(plan: Path) -> int:
    """Make the runs of a plan as a worker process; return the exit code."""
    with StopSignal() as stop:
        runner, cells = read_plan(plan, stop, print_message)
        try:
            runner.make_all(cells)
        except Stopped:
            print_message("stopped")
    return 0
