"""Arguments of `uiat reproduce`, and the experiments and runs that they select."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
import tyro

from uiat.cli.options import check_counts
from uiat.distributed import pick_device
from uiat.errors import UserError, unknown
from uiat.methods import METHODS
from uiat.plugins import Import, import_words
from uiat.precision import Precision
from uiat.reproduce.cell import Cell, merge, method_name, with_helpers
from uiat.reproduce.experiments import EXPERIMENTS, Experiment
from uiat.reproduce.measures import BATCH_SIZE
from uiat.reproduce.scale import Scale
from uiat.reproduce.scales import SCALES

CLAIMS = "claims"


@dataclass(frozen=True)
class Reproduce:
    """Reproduce the paper's tables and figures, or decide its claims from finished runs."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Tables and figures; `all` makes everything, `claims` reads finished runs only."""
    scale: Literal["smoke", "cpu", "paper"] = "smoke"
    """smoke: digits, minutes; cpu: CIFAR-10 at 16×16 and a small network; paper: the paper's settings, for a GPU."""
    seeds: int | None = None
    """How many seeds, from 0 on; else smoke 1, cpu 3, paper 1."""
    only: tuple[str, ...] = ()
    """Make only the runs of these methods (`uiat list methods`), and HAT's helpers for HAT."""
    plan: bool = False
    """Run nothing: print the runs, their pass counts, an estimated time, and a command for each."""
    out: str = ""
    """The folder; else results/SCALE where that exists (a clone of this project has published runs there), else
    runs/reproduce-SCALE. Finished runs in it are reused."""
    jobs: int | None = None
    """Worker processes; else two on a CPU of two cores or more, one for each GPU; 0 works in this process."""
    cell: tuple[str, ...] = ()
    """Make the runs of these keys alone (`--plan` prints them), with the helpers they need, and write no tables."""
    retime: bool = False
    """Repeat the benchmarks of Tables 2 and 5 on this machine, although results exist."""
    submit: Literal["slurm", "debug"] | None = None
    """slurm: submit the runs to a cluster, one job each, with submitit; debug: make them in this process."""
    submit_with: tuple[str, ...] = ()
    """Parameters of Slurm's jobs, such as timeout_min=600 gpus_per_node=1 slurm_partition=gpu."""
    precision: Precision = "fp32"
    """Of all trainings, as in `uiat train`; runs in another precision are other runs."""
    compile: bool = False
    """Use torch.compile in all trainings, as in `uiat train`; such runs are other runs."""
    batch_size: int = BATCH_SIZE
    """Images that a measurement attacks at a time; AutoAttack's random numbers depend on it, so that measurements with
    another number are other measurements."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto is the GPU if there is one."""
    data_dir: str | None = None
    """Folder with the data sets, also for downloads; default: $UIAT_DATA, else a cache folder."""
    imports: tyro.conf.Suppress[tuple[Import, ...]] = ()
    """Modules named by --import."""


@dataclass(frozen=True)
class Job:
    """The experiments and runs of a command line."""

    options: Reproduce
    scale: Scale
    experiments: tuple[Experiment, ...]
    cells: tuple[Cell, ...]
    seeds: int
    out: Path
    device: torch.device
    claims: bool

    @property
    def all_experiments(self) -> list[Experiment]:
        """All tables and figures at this scale, whatever the options select."""
        return [build(self.scale) for build in EXPERIMENTS.values()]


def plan_job(options: Reproduce) -> Job:
    """Return the experiments and the runs that the options select."""
    scale = replace(SCALES[options.scale], batch_size=options.batch_size)
    given = {name: getattr(options, name) for name in ("precision", "compile")}
    out = Path(options.out) if options.out else default_folder(scale.name)
    scale = replace(scale, finished_in=out)
    scale = scale.with_training(**{name: value for name, value in given.items() if value != getattr(Reproduce, name)})
    seeds = scale.seeds if options.seeds is None else options.seeds
    check_counts(options, seeds=1, jobs=0, batch_size=1)
    if not options.names and not options.cell:
        raise UserError(f"name what to reproduce: {', '.join(EXPERIMENTS)}, all or {CLAIMS}.")
    for name in options.names:
        if name not in (*EXPERIMENTS, "all", CLAIMS):
            raise unknown("table or figure", name, (*EXPERIMENTS, "all", CLAIMS))
    for word in options.submit_with:
        if not word.partition("=")[0] or "=" not in word:
            raise UserError(f"--submit-with {word!r} is not NAME=VALUE, such as timeout_min=600.")
    for method in options.only:
        if method not in METHODS:
            raise unknown("method", method, METHODS)
    everything = "all" in options.names or (bool(options.cell) and not options.names)
    experiments = tuple(build(scale) for name, build in EXPERIMENTS.items() if everything or name in options.names)
    cells = merge(cell for experiment in experiments for cell in experiment.cells(seeds))
    known_cells = bool(cells)
    only = (cell for cell in cells if not options.only or method_name(cell.config) in options.only)
    cells = with_helpers(only, out)
    if known_cells and not cells:
        raise UserError(
            f"no run of {', '.join(options.names)} is of the methods in --only: omit --only, or name others."
        )
    if options.cell:
        known = {cell.key: cell for cell in cells}
        for key in options.cell:
            if key not in known:
                raise UserError(f"there is no run of the key {key!r} at scale {scale.name}: see `--plan`.")
        cells = with_helpers((known[key] for key in dict.fromkeys(options.cell)), out)
    claims = everything or CLAIMS in options.names
    return Job(options, scale, experiments, tuple(cells), seeds, out, pick_device(options.device), claims)


def default_folder(scale: str) -> Path:
    """Return the folder of published runs of a scale where there is one here, else the usual one."""
    published = Path("results") / scale
    return published if published.is_dir() else Path(f"runs/reproduce-{scale}")


def job_command(options: Reproduce) -> list[str]:
    """Return the arguments of a command that works on the same folder at the same scale."""
    arguments = ["uiat", "reproduce", *options.names, "--scale", options.scale]
    for flag in ("seeds", "out", "data_dir", "precision", "batch_size", "device"):
        value = getattr(options, flag)
        if value and value != getattr(Reproduce, flag):
            arguments += [f"--{flag.replace('_', '-')}", str(value)]
    arguments += ["--compile"] if options.compile else []
    return arguments + import_words(options.imports)
