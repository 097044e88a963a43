"""Checkpoints, from which an interrupted run resumes with the same bits.

A checkpoint is `checkpoint.pt` and, if the method remembers predictions, the table file that it names. Both have a
digest. The previous checkpoint is kept as `checkpoint.previous.pt`, with its table file, in case the newer one is
damaged. A save writes the table under a new name, then the new checkpoint under a temporary name, renames the old
checkpoint, then the new one, and removes tables that neither names. At any time, there is one complete checkpoint with
its table.
"""

import io
import os
import time
import warnings
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from uiat.distributed import broadcast, is_main, wait
from uiat.errors import UserError, first_line, quoted
from uiat.io import append, digest, sealed, synced_size, write_sealed, write_tensors
from uiat.methods import Method
from uiat.progress import print_message
from uiat.runs.provenance import Provenance
from uiat.runs.run_folder import RunFolder
from uiat.targets import PredictionTable
from uiat.typed import check_record

CHECKPOINT_SCHEMA = 1
CONTENT: dict[str, Any] = {
    **dict.fromkeys(("model", "method"), dict[str, Tensor]),
    **dict.fromkeys(("optimizer", "meter", "scaler", "overfitting"), dict[str, Any]),
    **dict.fromkeys(("epoch", "step", "skipped", "overflows", "metrics_bytes"), int),
    **{"average": dict[str, Any] | None, "passes": dict[str, float], "best": dict[str, float], "seconds": float},
    **{"rng": Tensor, "rng_cuda": list[Tensor], "table_file": str | None, "table_sha256": str | None},
}
"""The types of a checkpoint's entries."""


class CheckpointState(Protocol):
    """The state that a checkpoint saves: `engine.state.State`."""

    method: Method
    epoch: int
    step: int

    def state_dict(self) -> dict[str, Any]:
        """Return the state without the method."""

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore a saved state."""


class AnotherVersion(UserError):
    """An undamaged checkpoint that this version cannot read."""


class Damaged(Exception):
    """A checkpoint that cannot be used; the message names the damaged file."""


@dataclass(frozen=True)
class Found:
    """An undamaged checkpoint."""

    path: Path
    saved: dict[str, Any]
    problem: str
    """Why it is not `checkpoint.pt`, if it is not."""


@dataclass
class Checkpointer:
    """Writes and reads the checkpoints of one run."""

    run: RunFolder
    provenance: Provenance | None = None
    """The provenance of the run, on the main process; `None` if checkpoints are only read."""
    notices: list[str] = field(default_factory=list)
    """Notices of the last `load`, which are printed and logged already."""
    _sound: bool = True
    """Whether `checkpoint.pt` is undamaged, so that the next save keeps it as the previous one."""
    _table_file: str | None = None
    _table_digest: str | None = None
    _table_version: int = 0

    def save(self, state: CheckpointState) -> None:
        """Save the state, and the table of p if it changed since the last save.

        All processes call this, since some of the state is distributed; the main one writes.
        """
        content = {"schema": CHECKPOINT_SCHEMA, **state.state_dict()}
        if is_main():
            self._write(content, state)
        wait()

    def _write(self, content: dict[str, Any], state: CheckpointState) -> None:
        self.run.check_held()
        method, table = split_tables(state.method)
        version, before = _version(state.method), self._table_file
        name, sha256 = self._table_file, self._table_digest
        changed = bool(table) and (name is None or version != self._table_version)
        if changed:
            name = f"table-{state.epoch:05d}-{state.step:07d}.safetensors"
            write_tensors(self.run.path / name, table)
            sha256 = digest(self.run.path / name)
        length = synced_size(self.run.metrics)  # on the disk before the checkpoint that refers to them
        if self.provenance is not None:
            content["provenance"] = self.provenance.state_dict()
        content |= {"method": method, "table_file": name, "table_sha256": sha256, "metrics_bytes": length}
        # A failure here keeps the new table, since the checkpoint may be in place by then; the next save removes it.
        write_sealed(self.run.checkpoint, content, self.run.previous if self._sound else None)
        self._sound, self._table_file, self._table_digest, self._table_version = True, name, sha256, version
        for old in (*self.run.path.glob("table-*.safetensors"), *self.run.path.glob(".table-*.tmp")):
            if old.name not in (name, before):
                old.unlink()

    def load(self, state: CheckpointState, device: torch.device) -> bool:
        """Restore the last undamaged checkpoint and truncate the metrics to it; `False` if there is none yet.

        The main process chooses the checkpoint, so that all processes resume from the same one.
        """
        found, problem = self._choose(device) if is_main() else (None, "")
        file, problem = broadcast((found.path.name if found else "", problem))
        if problem:
            raise UserError(problem)
        if not file:
            _cut(self.run, 0)
            return False
        path = self.run.path / file
        try:
            saved = self._read(path, device) if found is None else found.saved
            state.method.load_state_dict(saved["method"])
            state.load_state_dict(saved)
        except Exception as error:  # a downloaded checkpoint may hold anything
            raise UserError(f"{path} does not fit the run's configuration ({first_line(error)}).") from None
        self._table_file, self._table_digest = saved["table_file"], saved.get("table_sha256")
        self._table_version = _version(state.method)
        _cut(self.run, saved["metrics_bytes"])
        return True

    def read(self) -> dict[str, Any] | None:
        """Return the content of the newest undamaged checkpoint, and write nothing; `None` if there is none yet."""
        found = self._find(torch.device("cpu"))
        return None if found is None else found.saved

    def _choose(self, device: torch.device) -> tuple[Found | None, str]:
        """Return the checkpoint to resume from, if there is one, and an error message or "", and print notices."""
        try:
            found = self._find(device)
            if found is None:
                self._check_beginning()
                return None, ""
            notice = self.provenance.resume(found.saved, found.path) if self.provenance is not None else ""
        except UserError as error:
            return None, str(error)
        self._sound = found.path == self.run.checkpoint
        if not self._sound:
            where = f"epoch {found.saved['epoch']} after step {found.saved['step']}"
            self._notify(f"{found.problem}: resuming from the checkpoint before it, {found.path.name}, at {where}")
        if notice:
            self._notify(notice)
        return found, ""

    def _find(self, device: torch.device) -> Found | None:
        """Return the newest undamaged checkpoint; `None` if there is none yet."""
        existing = [path for path in (self.run.checkpoint, self.run.previous) if path.exists()]
        problems: list[str] = []
        for path in existing:
            try:
                saved = self._read(path, device)
            except Damaged as problem:
                problems.append(str(problem))
                continue
            return Found(path, saved, problems[0] if problems else f"{self.run.checkpoint} is missing")
        if not existing:
            return None
        away = " and ".join(path.name for path in existing)
        advice = f"move {away} away and `uiat train --resume {quoted(self.run.path)}` starts the run from scratch."
        raise UserError(f"{' and '.join(problems)}: {self._alternatives() if self._past() else advice}")

    def _check_beginning(self) -> None:
        """Print a notice if a run without a checkpoint restarts; raise an error if it would lose epochs."""
        if self._past():
            state = "finished" if self.run.is_finished else "not finished"
            raise UserError(f"{self.run.path} is {state}, but its checkpoints are missing: {self._alternatives()}")
        if self.run.has_trained():
            self._notify(f"{self.run.path} has no checkpoint yet: starting again at the first step")

    def _past(self) -> bool:
        return self.run.is_finished or self.run.past_epochs()

    def _alternatives(self) -> str:
        weights = (
            f"`uiat evaluate {quoted(self.run.path)}` still measures its weights, and "
            if self.run.best.exists()
            else ""
        )
        return f"{weights}to train again, start a run in another folder, or move this one away."

    def _notify(self, notice: str) -> None:
        self.notices.append(notice)
        print_message(notice)
        append(self.run.log, f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {notice}\n")

    def _read(self, path: Path, device: torch.device) -> dict[str, Any]:
        """Return the content of an undamaged checkpoint, with its table in `method`; no code in it is run."""
        try:
            content = path.read_bytes()
            intact = sealed(content)
            if intact is False:
                raise ValueError("its digest differs")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about pickle protocols and other file formats
                saved: dict[str, Any] = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
            if intact and saved["schema"] != CHECKPOINT_SCHEMA:
                raise AnotherVersion(f"{path} was written by another version of uiat: resume with that version.")
            if saved["schema"] != CHECKPOINT_SCHEMA:
                raise ValueError("it has no schema")
            check_record(saved, CONTENT)
            if saved["epoch"] < 1 or saved["step"] < 0 or saved["metrics_bytes"] < 0 or not isfinite(saved["seconds"]):
                raise ValueError("its epoch, step, size or time is out of range")
            saved["rng"] = saved["rng"].cpu()
            saved["rng_cuda"] = [state.cpu() for state in saved["rng_cuda"]]
            saved["method"], saved["metrics_bytes"] = dict(saved["method"]), int(saved["metrics_bytes"])
            name, sha256 = saved["table_file"], saved.get("table_sha256")
        except AnotherVersion:
            raise
        except Exception:  # damaged bytes make the reader fail in any way, down to `struct.error`
            raise Damaged(f"{path} is damaged or of another version") from None
        if name is not None:
            saved["method"] |= self._read_table(str(name), sha256, device)
        return saved

    def _read_table(self, name: str, sha256: str | None, device: torch.device) -> dict[str, Tensor]:
        path = self.run.path / os.path.basename(name)
        try:
            if sha256 is not None and digest(path) != sha256:
                raise ValueError("its digest differs")
            return load_file(path, device=str(device))
        except (OSError, ValueError, SafetensorError):
            raise Damaged(f"{path} is missing or damaged") from None


def known_identity(run: RunFolder) -> dict[str, Any]:
    """Return the data fingerprint in a run's checkpoint; empty without one."""
    provenance = (Checkpointer(run).read() or {}).get("provenance", {})
    return dict(provenance.get("data", {}))


def split_tables(method: Method) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split a method's state into (all but the tables of p, the tables of p)."""
    prefixes = tuple(f"{name}." for name, module in method.named_modules() if isinstance(module, PredictionTable))
    state = method.state_dict()
    table = {name: value for name, value in state.items() if prefixes and name.startswith(prefixes)}
    return {name: value for name, value in state.items() if name not in table}, table


def _version(method: Method) -> int:
    return sum(module.version for module in method.modules() if isinstance(module, PredictionTable))


def _cut(run: RunFolder, size: int) -> None:
    """Truncate the metrics after the last checkpoint: the steps since then are repeated."""
    wait()  # no process writes while another still reads
    if is_main() and run.metrics.exists() and run.metrics.stat().st_size > size:  # a smaller one would be extended
        os.truncate(run.metrics, size)
