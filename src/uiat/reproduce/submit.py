"""Handing a plan to a cluster with submitit (an optional extra): one job of an array for each run."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from uiat.errors import UserError
from uiat.reproduce.cell import Cell, Store

FOLDER = "submitted"


class CellJob:
    """A job: the command of one run. Cut off by its time limit, it is submitted again, and the run goes on."""

    def __init__(self, words: list[str], cell: Cell, out: Path):
        self.words, self.cell, self.out = words, cell, out

    def __call__(self) -> int:
        """Run the command; one that failed, or was stopped before its run was finished, fails the job."""
        subprocess.run([sys.executable, "-m", *self.words], check=True)
        if not Store(self.cell, self.out).finished:
            raise RuntimeError(f"{self.cell.name} is not finished: the same command goes on")
        return 0

    def checkpoint(self) -> Any:
        """Submit the same command again: all of the run is on the disk."""
        import submitit

        return submitit.helpers.DelayedSubmission(CellJob(self.words, self.cell, self.out))


def read_parameters(words: Sequence[str]) -> dict[str, Any]:
    """Return `timeout_min=600 slurm_partition=gpu` as submitit takes it; whole numbers become numbers."""
    parameters: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UserError(f"--submit-with {word!r} is not NAME=VALUE, such as timeout_min=600.")
        parameters[name] = int(value) if value.isdigit() else value
    return parameters


def submit(cells: Sequence[Cell], out: Path, command: list[str], cluster: str, parameters: dict[str, Any]) -> list[Any]:
    """Submit a job for each cell and return them; those of this machine (`local`, `debug`) are waited for."""
    try:
        import submitit
    except ImportError:
        raise UserError("--submit needs submitit: pip install 'uiat[submit]'.") from None
    if not cells:
        return []
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    try:
        executor = submitit.AutoExecutor(folder=str(folder), cluster=cluster)
        executor.update_parameters(**{"name": "uiat", **parameters})
        with executor.batch():
            jobs = [executor.submit(CellJob([*command, "--cell", cell.key], cell, out)) for cell in cells]
    except (RuntimeError, NameError, ValueError, TypeError) as error:
        raise UserError(f"submitit could not submit to {cluster!r}: {error}.") from None
    if cluster != "slurm":
        for job in jobs:
            job.exception()  # waits; a run that failed says so in its own folder
    return jobs
