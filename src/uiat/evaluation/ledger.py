"""The state of an evaluation, saved after every batch, from which an interrupted one resumes.

Verdicts are in one small file, which is replaced after each batch. Adversarial examples, if they are kept, are appended
to a second file: they are on disk before the verdicts that refer to them, and any beyond these are truncated.
"""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from uiat.errors import UserError
from uiat.io import WriteError, no_link, write_tensors
from uiat.locks import LockUnsupported, open_locked

FACTS = ("component", "batch", "seconds", "finished", "after", "invalid", "distance")
"""Fields of a stage that are saved beside its tensors."""


@dataclass
class Stage:
    """Progress of one attack: which examples are not yet misclassified, and which batch of which component is next."""

    correct: Tensor
    """(examples,) of bool: not yet misclassified."""
    queue: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    """The examples that the current component attacks, in order: those still classified correctly when it began."""
    component: int = 0
    batch: int = 0
    seconds: float = 0.0
    finished: bool = False
    after: dict[str, float] = field(default_factory=dict)
    """Accuracy after each finished component."""
    invalid: int = 0
    """Number of natural examples with a NaN among their logits."""
    distance: float = 0.0
    """Largest distance of an x̂ of a custom attack from its x."""
    fallen: list[int] = field(default_factory=list)
    """The examples whose x̂ was kept, in the order in which x̂ was found."""
    x_adv: list[Tensor] = field(default_factory=list)
    """Their x̂, batch by batch, in the same order."""

    def keep(self, members: Tensor, x_adv: Tensor) -> None:
        """Keep the x̂ of these examples."""
        if len(members):
            self.fallen += members.tolist()
            self.x_adv.append(x_adv.float())

    def adversaries(self, x: Tensor) -> Tensor:
        """Return the x̂ of all examples x; the natural example where none was found."""
        x_adv = x.clone()
        if self.x_adv:
            x_adv[self.fallen] = torch.cat(self.x_adv)
        return x_adv


class Ledger:
    """The stages of an evaluation, by attack; saved to a file if there is a path.

    With `exclusive`, a second process that opens the same file is refused as long as this one runs. With `restart`, the
    files of an earlier process are removed.
    """

    def __init__(self, path: Path | None = None, key: str = "", *, exclusive: bool = False, restart: bool = False):
        self.path, self.key = path, key
        self.stages: dict[str, Stage] = {}
        self._hash, self._appended = hashlib.sha256(), 0
        """Digest of the x̂ in their file, and the number of their batches."""
        self._lock = _lock(path) if path is not None and exclusive else None
        if path is not None and restart:
            self._remove(path)
        if path is not None and path.exists():
            self._read(path)

    @property
    def resumed(self) -> bool:
        """Whether it was started by an earlier process."""
        return bool(self.stages)

    def begin(self, name: str, correct: Tensor) -> Stage:
        """Return the stage of this name, if there is one; else add one that starts from these verdicts."""
        if name not in self.stages:
            self.stages[name] = Stage(correct.clone())
        return self.stages[name]

    def save(self) -> None:
        """Write all stages, atomically."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._append(_adversaries_file(self.path))
        tensors: dict[str, Tensor] = {}
        facts: dict[str, dict[str, object]] = {}
        for name, stage in self.stages.items():
            tensors |= {f"{name}/standing": stage.correct, f"{name}/queue": stage.queue}
            facts[name] = {k: getattr(stage, k) for k in FACTS}
            if stage.x_adv:
                tensors[f"{name}/fallen"] = torch.tensor(stage.fallen)
                facts[name]["shape"] = list(stage.x_adv[0].shape[1:])
        stages = json.dumps(facts)
        digests = {"sha256": _digest(tensors, stages), "adversaries_sha256": self._hash.hexdigest()}
        write_tensors(self.path, tensors, {"key": self.key, "stages": stages, **digests})

    def _append(self, path: Path) -> None:
        """Append the x̂ that are not in the file yet."""
        batches = [batch for stage in self.stages.values() for batch in stage.x_adv]
        content = b"".join(batch.contiguous().numpy().tobytes() for batch in batches[self._appended :])
        if content:
            try:
                with open(path, "ab" if self._appended else "wb", opener=no_link) as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise WriteError(path, error) from None
            self._hash.update(content)
            self._appended = len(batches)

    def close(self) -> None:
        """Remove the files of a finished evaluation."""
        if self.path is not None:
            self._remove(self.path)
        self._release()

    def _release(self) -> None:
        if self.path is not None and self._lock is not None:
            _lock_file(self.path).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock; the files of an unfinished evaluation stay, so that it can be resumed."""
        self._release()

    @staticmethod
    def _remove(path: Path) -> None:
        path.unlink(missing_ok=True)
        _adversaries_file(path).unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                facts = file.metadata() or {}
                if facts.get("key") != self.key:
                    return
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if facts["sha256"] != _digest(tensors, facts["stages"]):
                raise ValueError("the digest of the verdicts does not match")
            stages, shapes = {}, {}
            for name, rest in json.loads(facts["stages"]).items():
                shapes[name] = rest.pop("shape", None)
                stages[name] = Stage(tensors[f"{name}/standing"], tensors[f"{name}/queue"], **rest)
                if shapes[name] is not None:
                    stages[name].fallen = tensors[f"{name}/fallen"].tolist()
            self._read_adversaries(_adversaries_file(path), stages, shapes, facts["adversaries_sha256"])
            self.stages = stages
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError, RecursionError):
            pass  # a damaged file is ignored: the evaluation starts from scratch

    def _read_adversaries(
        self, path: Path, stages: dict[str, Stage], shapes: dict[str, list[int] | None], digest: str
    ) -> None:
        """Read the x̂ of the stages, and truncate the file to those that the stages refer to."""
        content, start = path.read_bytes() if path.exists() else b"", 0
        for name, stage in stages.items():
            shape = shapes[name]
            if shape is not None:
                count = len(stage.fallen) * torch.Size(shape).numel()
                rows = torch.frombuffer(bytearray(content[start : start + 4 * count]), dtype=torch.float32)
                stage.x_adv = [rows.view(len(stage.fallen), *shape)]
                start += 4 * count
        saved = hashlib.sha256(content[:start])
        if saved.hexdigest() != digest:
            raise ValueError("the digest of the adversarial examples does not match")
        if len(content) > start:
            os.truncate(path, start)
        self._hash = saved
        self._appended = sum(len(stage.x_adv) for stage in stages.values())


def _adversaries_file(path: Path) -> Path:
    """Return the file with the x̂ of a ledger: rows of float32, stage after stage."""
    return path.with_suffix(".adversaries")


def _lock_file(path: Path) -> Path:
    return path.with_name(f".{path.stem}.lock")


def _lock(path: Path) -> int | None:
    """Lock a ledger and return the descriptor of the lock; `None` where the file system has no locks."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_locked(_lock_file(path))
    except BlockingIOError:
        raise UserError("another process is running the same evaluation: wait for it.") from None
    except LockUnsupported:
        _lock_file(path).unlink(missing_ok=True)
        return None
    except OSError as error:
        raise WriteError(path, error) from None


def _digest(tensors: dict[str, Tensor], stages: str) -> str:
    """Return the digest of the saved content, which is compared on reading: a flipped bit could change a verdict."""
    digest = hashlib.sha256(stages.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().numpy().data)
    return digest.hexdigest()
