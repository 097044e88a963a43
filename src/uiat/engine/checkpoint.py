"""Saving a run so that it can go on from any moment, in the same bits.

A checkpoint is `checkpoint.pt` and, where the method remembers predictions, the table file it names. The table is
written first and under a new name, so that at every moment the checkpoint and the table it names
belong together.
"""

import os
import pickle
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from uiat.distributed import is_main, wait
from uiat.engine.files import atomic, write_tensors
from uiat.engine.run import RunFolder
from uiat.engine.state import State
from uiat.errors import UserError
from uiat.methods import Method
from uiat.targets import PredictionTable

SCHEMA = 1


@dataclass
class Checkpointer:
    """Writes and reads the checkpoints of one run."""

    run: RunFolder
    _table_file: str | None = None
    _table_version: int = 0

    def save(self, state: State) -> None:
        """Write the state, and the table of p only if it changed since the last time.

        Every process takes part, since some of the state is spread over them; the main one writes.
        """
        content = {"schema": SCHEMA, **state.state_dict()}
        if is_main():
            self._write(content, state)
        wait()

    def _write(self, content: dict[str, Any], state: State) -> None:
        method, table = split_tables(state.method)
        version = _version(state.method)
        if table and (self._table_file is None or version != self._table_version):
            self._table_file = f"table-{state.epoch:05d}-{state.step:07d}.safetensors"
            write_tensors(self.run.path / self._table_file, table)
            self._table_version = version
        content |= {
            "method": method,
            "table_file": self._table_file,
            "metrics_bytes": self.run.metrics.stat().st_size if self.run.metrics.exists() else 0,
        }
        with atomic(self.run.checkpoint) as temporary:
            torch.save(content, temporary)
        for old in self.run.path.glob("table-*.safetensors"):
            if old.name != self._table_file:
                old.unlink()

    def load(self, state: State, device: torch.device) -> bool:
        """Bring the state to the last checkpoint and cut the metrics to its moment; `False` if there is none yet."""
        if not self.run.checkpoint.exists():
            _cut(self.run, 0)
            return False
        saved = self._read(device)
        method = dict(saved["method"])
        if saved["table_file"] is not None:
            method |= self._read_table(saved["table_file"], device)
        try:
            state.method.load_state_dict(method)
            state.load_state_dict(saved)
        except (RuntimeError, KeyError, ValueError) as error:
            first = str(error).strip().splitlines()[0]
            raise UserError(f"{self.run.checkpoint} does not fit the run's configuration ({first}).") from None
        self._table_file, self._table_version = saved["table_file"], _version(state.method)
        _cut(self.run, saved["metrics_bytes"])
        return True

    def _read(self, device: torch.device) -> dict[str, Any]:
        try:
            saved = torch.load(self.run.checkpoint, map_location=device, weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError):
            saved = None
        if not isinstance(saved, dict) or saved.get("schema") != SCHEMA:
            raise UserError(
                f"{self.run.checkpoint} is damaged or of another version: move it away and "
                f"`uiat train --resume {self.run.path}` begins the run anew."
            )
        saved["rng"] = saved["rng"].cpu()
        saved["rng_cuda"] = [state.cpu() for state in saved["rng_cuda"]]
        return saved

    def _read_table(self, name: str, device: torch.device) -> dict[str, Tensor]:
        path = self.run.path / os.path.basename(name)
        try:
            return load_file(path, device=str(device))
        except (OSError, SafetensorError):
            raise UserError(
                f"{path} is missing or damaged: without it the run cannot go on from {self.run.checkpoint}; "
                "move both away to begin it anew."
            ) from None


def split_tables(method: Method) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Part a method's state into the small rest and the tables of p."""
    prefixes = tuple(f"{name}." for name, module in method.named_modules() if isinstance(module, PredictionTable))
    state = method.state_dict()
    table = {name: value for name, value in state.items() if prefixes and name.startswith(prefixes)}
    return {name: value for name, value in state.items() if name not in table}, table


def _version(method: Method) -> int:
    return sum(module.version for module in method.modules() if isinstance(module, PredictionTable))


def _cut(run: RunFolder, size: int) -> None:
    """Drop the metrics lines that a killed process wrote after its last checkpoint: they will be written again."""
    wait()  # nobody writes while another still reads
    if is_main() and run.metrics.exists():
        os.truncate(run.metrics, size)
