"""What is measured on a finished run, each once: accuracy under an attack, a curve over ε, inverse examples."""

import hashlib
import json
from dataclasses import dataclass
from math import exp
from typing import Any, Protocol

import torch
from torch import Tensor

from uiat.config import encode
from uiat.errors import UserError
from uiat.evaluation.curves import measure, plan_points
from uiat.evaluation.inverses import KINDS, inverse_settings, make_inverses, read_z, shown_places
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.subject import Ready
from uiat.evaluation.suite import run_suite

RESULTS_VERSION = 2
"""Raise it with any change after which the same configuration gives other numbers beyond the order of floats: to a
method, an attack, a network, the data, the loop, or a measurement. Finished runs and measurements of before are then
made anew beside the old ones."""


def stamped(facts: Any) -> Any:
    """Return what a key is made of, with the version. The first adds nothing: runs without a version are of it."""
    return facts if RESULTS_VERSION == 1 else {"results": RESULTS_VERSION, "of": facts}


Result = tuple[dict[str, Any], dict[str, Tensor]]
"""What people and programs read of a measurement, and its tensors (the verdict on every example among them)."""


class Measure(Protocol):
    """A measurement: a frozen dataclass, whose fields name its file."""

    @property
    def title(self) -> str:
        """A word for file names and plans."""

    @property
    def n(self) -> int | None:
        """How many test images, balanced over classes; `None`: all."""

    @property
    def weights(self) -> str:
        """Which weights of the run: `best` on the validation split, or `last`."""

    def run(self, ready: Ready, ledger: Ledger) -> Result:
        """Measure; the ledger keeps what is known so far."""


def measure_key(measure: Measure) -> str:
    """Return the name of a measurement's file, which tells it from all others."""
    text = json.dumps(stamped(encode(measure, key=True)), sort_keys=True)
    return f"{measure.title}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Attacked:
    """Accuracy under an attack by its name (`natural` is one) at the radius the run was watched with."""

    attack: str
    n: int | None = None
    weights: str = "best"

    @property
    def title(self) -> str:
        """The attack's name."""
        return self.attack.replace("+", "-")

    def run(self, ready: Ready, ledger: Ledger) -> Result:
        """Measure it with the images at hand."""
        found = run_suite(ready.fast, ready.images, [self.attack], ready.base, device=ready.device, ledger=ledger)
        accuracy = found.attacks[self.attack]
        return {**accuracy.to_json(), "notices": found.notices}, {"correct": accuracy.correct}


@dataclass(frozen=True)
class Curve:
    """Accuracy at each ε of a grid, and which images are in the easier half; negative ε are inverse perturbations."""

    attack: str
    grid: tuple[float, ...]
    n: int | None = None
    weights: str = "best"

    @property
    def title(self) -> str:
        """The attack's name, as a curve."""
        return f"curve-{self.attack}"

    def run(self, ready: Ready, ledger: Ledger) -> Result:
        """Measure every point."""
        classes = ready.images.spec.num_classes
        points = plan_points(self.grid, self.attack, ready.base, num_classes=classes, seed=0)
        found = measure(ready.fast, ready.images, points, device=ready.device, ledger=ledger)
        accuracies = {name: group.double().mean(dim=1).tolist() for name, group in found.groups().items()}
        facts = {"n": len(ready.images), "grid": list(found.grid), "accuracy": accuracies, "notices": found.notices}
        return facts, {"correct": found.correct, "easier": found.easier}


@dataclass(frozen=True)
class Inverse:
    """Inverse and universal inverse examples of the last weights, with the z that the run ended with (Eq. 5)."""

    rows: int = 5
    n: int | None = None
    weights: str = "last"
    title: str = "inverse"

    def run(self, ready: Ready, ledger: Ledger) -> Result:
        """Count for how many images each kind lowers the loss; keep what the picture shows."""
        assert ready.run is not None
        universal = read_z(ready.run)
        if universal is None:
            raise UserError(f"{ready.run.path} has no z: inverse examples are measured on a UIAT run.")
        settings = inverse_settings(ready.run.read_config().method, ready.base)
        shown = shown_places(ready.images.y, self.rows, 1)
        found = make_inverses(ready.model, ready.fast, ready.images, settings, universal.z, shown, device=ready.device)
        labels = [ready.images.classes[int(found.y[place])] for place in shown]
        natural = found.losses["cross_entropy"]
        p = [[exp(-float(natural[kind][place])) for kind in KINDS] for place in shown]
        order = torch.searchsorted(found.kept, shown)
        tensors = {kind: found.x[kind][order] for kind in KINDS} | {"z": universal.z[found.y[shown]], "y": found.y}
        for loss, by in found.losses.items():
            tensors |= {f"lowered/{loss}/{kind}": by[kind] < by["natural"] for kind in KINDS[1:]}
        facts = {"n": len(found.y), "labels": labels, "p": p, "eps": settings.instance.eps, "z": universal.source}
        return {**facts, **found.table(ready.images.classes)}, tensors
