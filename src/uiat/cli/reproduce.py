"""`uiat reproduce NAME…`: the paper's tables and figures, at a scale of one's choice."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from rich.console import Console

from uiat.cli.numbers import REGISTRY
from uiat.engine.setup import pick_device
from uiat.engine.signals import StopSignal
from uiat.errors import UserError, unknown
from uiat.methods import METHODS
from uiat.progress import PatientConsole
from uiat.reproduce import scales
from uiat.reproduce.cell import Cell, merge, method_name
from uiat.reproduce.claims import overall
from uiat.reproduce.claims_output import write_claims
from uiat.reproduce.experiments import EXPERIMENTS, Experiment
from uiat.reproduce.index import write_index
from uiat.reproduce.plan import print_plan
from uiat.reproduce.runner import Worker
from uiat.reproduce.store import Store
from uiat.reproduce.submit import read_parameters, submit
from uiat.reproduce.table import Table
from uiat.reproduce.work import Stopped
from uiat.reproduce.workers import CALL, run_workers, stop_with_parent

CLAIMS = "claims"


@dataclass(frozen=True)
class Reproduce:
    """Make the paper's tables and figures, or say what finished runs show of its claims."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """table1 … table6, fig1 … fig5, figS1, figS2; `all` makes everything; `claims` reads finished runs only."""
    scale: Literal["smoke", "cpu", "paper"] = "smoke"
    """smoke: digits, minutes; cpu: CIFAR-10 at 16×16 and a small network; paper: the paper's settings, for a GPU."""
    seeds: int | None = None
    """How many seeds, from 0 on; else smoke 1, cpu 3, paper 1."""
    only: tuple[str, ...] = ()
    """Make only the runs of these methods (`uiat list methods`)."""
    plan: bool = False
    """Make nothing: print the runs, their passes, an estimated time, and a command for each."""
    out: str = ""
    """The folder; else runs/reproduce-SCALE. Runs that are finished there are not made again."""
    jobs: int | None = None
    """Worker processes; else two on a CPU of two cores or more, one on a GPU; 0 works in this process."""
    cell: tuple[str, ...] = ()
    """Make the runs of these keys alone (`--plan` prints them), and no tables."""
    submit: Literal["slurm", "local", "debug"] | None = None
    """Hand the runs to a cluster, one job each, with submitit; `local` and `debug` use this machine."""
    submit_with: tuple[str, ...] = ()
    """Parameters of the jobs, such as timeout_min=600 gpus_per_node=1 slurm_partition=gpu."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto is the GPU if there is one."""
    data_dir: str | None = None
    """Where data sets are looked for and downloaded to; else $UIAT_DATA, else a cache folder."""


@dataclass(frozen=True)
class Job:
    """What a command line asks for, settled."""

    options: Reproduce
    experiments: tuple[Experiment, ...]
    cells: tuple[Cell, ...]
    seeds: int
    out: Path
    device: torch.device
    claims: bool


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


def settle(options: Reproduce) -> Job:
    """Find the experiments and the runs that are asked for."""
    scale = scales.get(options.scale)
    seeds = scale.seeds if options.seeds is None else options.seeds
    if seeds < 1:
        raise UserError(f"--seeds is {seeds}: give at least 1.")
    if options.jobs is not None and options.jobs < 0:
        raise UserError(f"--jobs is {options.jobs}: give 0 or more.")
    if not options.names and not options.cell:
        raise UserError(f"name what to make: {', '.join(EXPERIMENTS)}, all or {CLAIMS}.")
    for name in options.names:
        if name not in (*EXPERIMENTS, "all", CLAIMS):
            raise unknown("table or figure", name, (*EXPERIMENTS, "all", CLAIMS))
    for method in options.only:
        if method not in METHODS:
            raise unknown("method", method, METHODS)
    everything = "all" in options.names or (bool(options.cell) and not options.names)
    experiments = tuple(build(scale) for name, build in EXPERIMENTS.items() if everything or name in options.names)
    cells = merge(cell for experiment in experiments for cell in experiment.cells(seeds))
    cells = [cell for cell in cells if not options.only or method_name(cell.config) in options.only]
    if options.cell:
        known = {cell.key: cell for cell in cells}
        for key in options.cell:
            if key not in known:
                raise UserError(f"there is no run of the key {key!r} at scale {scale.name}: see `--plan`.")
        cells = [known[key] for key in dict.fromkeys(options.cell)]
    out = Path(options.out or f"runs/reproduce-{scale.name}")
    claims = everything or CLAIMS in options.names
    return Job(options, experiments, tuple(cells), seeds, out, pick_device(options.device), claims)


def job_command(options: Reproduce) -> list[str]:
    """Return the words of a command that works on the same folder at the same scale."""
    words = ["uiat", "reproduce", "--scale", options.scale]
    for flag in ("seeds", "out", "data_dir", "device"):
        value = getattr(options, flag)
        if value and value != "auto":
            words += [f"--{flag.replace('_', '-')}", str(value)]
    return words


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
    """Write what the finished runs give."""
    job.out.mkdir(parents=True, exist_ok=True)
    time_methods(job)
    written = {experiment.name: experiment.write(job.out, job.seeds) for experiment in job.experiments}
    console = Console(highlight=False)
    if job.claims:
        found = write_claims(scales.get(job.options.scale), job.out, job.seeds)
        for claim, parts in found:
            console.print(f"{claim.text} ({claim.where}): {overall(parts)}", markup=False, soft_wrap=True)
    write_index([build(scales.get(job.options.scale)) for build in EXPERIMENTS.values()], job.out)
    for name, paths in written.items():
        console.print(
            f"{name}: {', '.join(path.name for path in paths) or 'nothing yet'}", markup=False, soft_wrap=True
        )
    console.print(f"written: {job.out}", markup=False, soft_wrap=True)


def _say(line: str) -> None:
    PatientConsole(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)
