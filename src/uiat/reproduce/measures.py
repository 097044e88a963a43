"""Measurements of runs: accuracy under an attack, curves over ε, inverse examples, and learning curves during training.

Learning curves (Figure 2) are for the report only: the epochs of a run are selected on the validation split as usual.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from uiat.config import AnyConfig
from uiat.config_json import encode
from uiat.data import Splits
from uiat.data.images import balanced
from uiat.engine.callbacks import LogEvent
from uiat.errors import UserError
from uiat.evaluation.curve_measurement import measure, plan_points
from uiat.evaluation.inverses import IMAGE_KINDS, inverse_settings, make_inverses, read_z, shown_places
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.subject import LoadedSubject
from uiat.evaluation.suite import accuracy, run_suite
from uiat.fields import optional_in_key
from uiat.io import write_tensors

RESULTS_VERSION = 2
"""Raise it with any change after which the same configuration gives other numbers beyond the order of floats: to a
method, an attack, a network, the data, the loop, or a measurement. Runs and measurements that were finished before are
then repeated, in new files."""
BATCH_SIZE = 256
"""Images that a measurement attacks at a time, by default."""
LEARNING_FILE = "learning.safetensors"
"""The learning curves of a run."""
LEARNING_LINES = ("train natural", "train robust", "test natural", "test robust")


def with_results_version(facts: Any) -> Any:
    """Return what a key is made of, with the version."""
    return {"results": RESULTS_VERSION, "of": facts}


Result = tuple[dict[str, Any], dict[str, Tensor]]
"""The facts of a measurement for its JSON file, and its tensors (the verdict on every example among them)."""


@dataclass(frozen=True)
class Attacked:
    """Accuracy under an attack by its name (`natural` is one) at the radius of the run's validation attack."""

    attack: str
    n: int | None = None
    weights: str = "best"
    split: str = optional_in_key("test")
    """`test`, or `unused`: training images outside the run's subset."""
    batch_size: int = optional_in_key(BATCH_SIZE)
    """Images attacked at a time; AutoAttack's random numbers depend on it."""

    @property
    def title(self) -> str:
        """The attack's name."""
        return self.attack.replace("+", "-")

    def run(self, subject: LoadedSubject, ledger: Ledger) -> Result:
        """Measure it on the images of the subject."""
        how: dict[str, Any] = {"batch_size": self.batch_size, "device": subject.device, "ledger": ledger}
        suite = run_suite(subject.fast, subject.images, [self.attack], subject.base, **how)
        accuracy = suite[self.attack]
        what = {"attack": self.attack, "weights": self.weights, "split": self.split}
        return {**what, **accuracy.to_dict(), "notices": suite.notices}, {"correct": accuracy.correct}


@dataclass(frozen=True)
class Curve:
    """Accuracy at each ε of a grid, and which images are in the easier half; negative ε are inverse perturbations."""

    attack: str
    grid: tuple[float, ...]
    n: int | None = None
    weights: str = "best"
    batch_size: int = optional_in_key(BATCH_SIZE)

    @property
    def title(self) -> str:
        """The attack's name, as a curve."""
        return f"curve-{self.attack}"

    def run(self, subject: LoadedSubject, ledger: Ledger) -> Result:
        """Measure every point."""
        classes = subject.images.spec.num_classes
        points = plan_points(self.grid, self.attack, subject.base, num_classes=classes, seed=0)
        how: dict[str, Any] = {"batch_size": self.batch_size, "device": subject.device, "ledger": ledger}
        curve = measure(subject.fast, subject.images, points, **how)
        accuracies = {name: group.double().mean(dim=1).tolist() for name, group in curve.groups().items()}
        facts = {"n": len(subject.images), "grid": list(curve.grid), "accuracy": accuracies, "notices": curve.notices}
        return facts, {"correct": curve.correct, "easier": curve.easier}


@dataclass(frozen=True)
class Inverse:
    """Inverse and universal inverse examples of the last weights, with the z that the run ended with (Eq. 5)."""

    rows: int = 5
    n: int | None = None
    weights: str = "last"
    title: str = "inverse"
    batch_size: int = optional_in_key(BATCH_SIZE)

    def run(self, subject: LoadedSubject, ledger: Ledger) -> Result:
        """Count for how many images each kind lowers the loss; keep what the picture shows."""
        assert subject.run is not None
        universal = read_z(subject.run)
        if universal is None:
            raise UserError(f"{subject.run.path} has no z: inverse examples are measured on a UIAT run.")
        settings = inverse_settings(subject.run.read_config().method, subject.base)
        shown = shown_places(subject.images.y, self.rows, 1)
        how: dict[str, Any] = {"batch_size": self.batch_size, "device": subject.device}
        inverses = make_inverses(subject.model, subject.fast, subject.images, settings, universal.z, shown, **how)
        labels = [subject.images.classes[int(inverses.y[place])] for place in shown]
        natural = inverses.losses["cross_entropy"]
        p = [[exp(-float(natural[kind][place])) for kind in IMAGE_KINDS] for place in shown]
        order = torch.searchsorted(inverses.kept, shown)
        tensors = {kind: inverses.x[kind][order] for kind in IMAGE_KINDS}
        tensors |= {"z": universal.z[inverses.y[shown]], "y": inverses.y}
        for loss, by in inverses.losses.items():
            tensors |= {f"lowered/{loss}/{kind}": by[kind] < by["natural"] for kind in IMAGE_KINDS[1:]}
        facts = {"n": len(inverses.y), "labels": labels, "p": p, "eps": settings.instance.eps, "z": universal.source}
        return {**facts, **inverses.table(subject.images.classes)}, tensors


Measure = Attacked | Curve | Inverse
"""A measurement: its fields name its file. `n` is how many test images, balanced over classes (`None`: all); `weights`
are the `best` on the validation split, or the `last`; `title` is part of file names and plans; the ledger of `run`
stores partial results."""


def measure_key(measure: Measure) -> str:
    """Return the name of a measurement's file, unique for its settings."""
    text = json.dumps(with_results_version(encode(measure, key=True)), sort_keys=True)
    return f"{measure.title}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Watch:
    """Which images, and which attack, the learning curves of a run are measured with."""

    train: int | None = None
    """How many training images, without augmentation and balanced over classes; `None`: all."""
    test: int | None = None
    """How many test images."""
    steps: int = 20
    """Steps of the PGD that attacks them."""


class Watcher:
    """Measures learning curves after every epoch, and keeps the verdict on every image in one file of the run."""

    def __init__(self, watch: Watch, config: AnyConfig, splits: Splits, folder: Path, device: torch.device):
        self.attack = replace(config.validate.attack(config.method), steps=watch.steps)
        parts = {"train": (splits.train, watch.train), "test": (splits.test, watch.test)}
        self.images = {
            part: images if count is None or count >= len(images) else images.take(balanced(images.y, count, 0))
            for part, (images, count) in parts.items()
        }
        self.path, self.device, self.config = folder / LEARNING_FILE, device, config

    def __call__(self, event: LogEvent) -> None:
        """Measure at the end of an epoch; one that is repeated after a kill gives the same verdicts again."""
        if event.record["kind"] != "epoch":
            return
        state = event.state
        known = load_file(self.path) if self.path.exists() else {}
        size = self.config.validate.batch_size
        with state.passes.paused():  # learning curves are not part of the cost of training
            for part, images in self.images.items():
                for kind, attack in (("natural", None), ("robust", self.attack)):
                    measured = accuracy(state.network, images, attack, batch_size=size, device=self.device)
                    known[f"{part} {kind}/{state.epoch}"] = measured.correct
        write_tensors(self.path, known)


def read_learning(folder: Path) -> dict[str, list[Tensor]]:
    """Return the verdicts of each line, epoch by epoch."""
    known = load_file(folder / LEARNING_FILE)
    epochs = len(known) // len(LEARNING_LINES)
    return {line: [known[f"{line}/{epoch}"] for epoch in range(1, epochs + 1)] for line in LEARNING_LINES}
