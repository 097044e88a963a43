"""Learning curves (Figure 2): natural and attacked accuracy on train and test after every epoch, for the report only.

Nothing of it reaches the run: its epochs are selected on the validation split as ever.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from uiat.config import AnyConfig
from uiat.data import Splits
from uiat.data.images import Images, balanced
from uiat.engine.callbacks import Moment
from uiat.evaluation.accuracy import accuracy
from uiat.io import write_tensors

FILE = "learning.safetensors"
LINES = ("train natural", "train robust", "test natural", "test robust")


@dataclass(frozen=True)
class Watch:
    """How a run is watched."""

    train: int | None = None
    """How many training images, without augmentation and balanced over classes; `None`: all."""
    test: int | None = None
    """How many test images."""
    steps: int = 20
    """Steps of the PGD that attacks them."""


class Watcher:
    """Measures after every epoch, and keeps the verdict on every image in one file of the run."""

    def __init__(self, watch: Watch, config: AnyConfig, splits: Splits, folder: Path, device: torch.device):
        self.attack = replace(config.validate.attack(config.method), steps=watch.steps)
        self.images = {"train": _some(splits.train, watch.train), "test": _some(splits.test, watch.test)}
        self.path, self.device, self.config = folder / FILE, device, config

    def __call__(self, moment: Moment) -> None:
        """Measure at the end of an epoch; one that is repeated after a kill gives the same verdicts again."""
        if moment.record["kind"] != "epoch":
            return
        state = moment.state
        counts = dict(state.passes.counts)
        known = load_file(self.path) if self.path.exists() else {}
        size = self.config.validate.batch_size
        for part, images in self.images.items():
            for kind, attack in (("natural", None), ("robust", self.attack)):
                found = accuracy(state.model, images, attack, batch_size=size, device=self.device)
                known[f"{part} {kind}/{state.epoch}"] = found.correct
        write_tensors(self.path, known)
        state.passes.counts.update(counts)  # watching is no cost of training


def read_learning(folder: Path) -> dict[str, list[Tensor]]:
    """Return the verdicts of each line, epoch by epoch."""
    known = load_file(folder / FILE)
    epochs = len(known) // len(LINES)
    return {line: [known[f"{line}/{epoch}"] for epoch in range(1, epochs + 1)] for line in LINES}


def _some(images: Images, count: int | None) -> Images:
    return images if count is None or count >= len(images) else images.take(balanced(images.y, count, 0))
