"""What is known of an evaluation so far, on the disk after every batch: a killed one goes on where it was."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from uiat.io import write_tensors


@dataclass
class Stage:
    """Where one attack stands: which examples still hold out, and which batch of which component is next."""

    standing: Tensor
    """(examples,) of bool: classified right so far."""
    queue: Tensor
    """The examples that the component at hand attacks, in order: those that stood when it began."""
    component: int = 0
    batch: int = 0
    seconds: float = 0.0
    finished: bool = False
    after: dict[str, float] = field(default_factory=dict)
    """Accuracy after each finished component."""
    x_adv: Tensor | None = None
    """The adversarial examples found, if they are kept."""


class Ledger:
    """The stages of an evaluation, by attack; kept in a file if there is a path."""

    def __init__(self, path: Path | None = None, key: str = ""):
        self.path, self.key = path, key
        self.stages: dict[str, Stage] = {}
        if path is not None and path.exists():
            self._read(path)

    @property
    def resumed(self) -> bool:
        """Whether there is work of an earlier process in it."""
        return bool(self.stages)

    def save(self) -> None:
        """Write all stages; either the old file or the new one is there, never half of one."""
        if self.path is None:
            return
        tensors: dict[str, Tensor] = {}
        facts: dict[str, dict[str, object]] = {}
        for name, stage in self.stages.items():
            tensors |= {f"{name}/standing": stage.standing, f"{name}/queue": stage.queue}
            if stage.x_adv is not None:
                tensors[f"{name}/x_adv"] = stage.x_adv
            facts[name] = {k: getattr(stage, k) for k in ("component", "batch", "seconds", "finished", "after")}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stages = json.dumps(facts)
        write_tensors(self.path, tensors, {"key": self.key, "stages": stages, "sha256": _digest(tensors, stages)})

    def close(self) -> None:
        """Forget the file: the evaluation is done, and a new one is measured anew."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                facts = file.metadata() or {}
                if facts.get("key") != self.key:
                    return
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                if facts["sha256"] != _digest(tensors, facts["stages"]):
                    return
                for name, rest in json.loads(facts["stages"]).items():
                    self.stages[name] = Stage(
                        tensors[f"{name}/standing"],
                        tensors[f"{name}/queue"],
                        x_adv=tensors.get(f"{name}/x_adv"),
                        **rest,
                    )
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError):
            self.stages = {}  # a damaged file costs its work, never the evaluation


def _digest(tensors: dict[str, Tensor], stages: str) -> str:
    """Return what the file must still hold when it is read: a flipped bit would change a verdict unseen."""
    found = hashlib.sha256(stages.encode())
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].contiguous().numpy().data)
    return found.hexdigest()
