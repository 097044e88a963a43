"""A look at a run's network on test images: accuracy against ε, confusion, z of each class, and frames."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from uiat import data
from uiat.crafting import crafting
from uiat.data.images import Images, to_unit
from uiat.errors import UserError
from uiat.evaluation.cascade import predictions
from uiat.evaluation.curve_measurement import default_grid, easier_half, measure, natural_losses, plan_points
from uiat.evaluation.intervals import wilson
from uiat.evaluation.inverses import inverse_settings, make_inverses, make_z
from uiat.evaluation.subject import LoadedSubject, Subject, prepare
from uiat.evaluation.suite import run_suite
from uiat.fields import COUNT, WEIGHT, Range, require
from uiat.report.page.frames import Frames, Walk, make_frames
from uiat.report.page.runs import Run
from uiat.runs.identity import choose_data, find_data
from uiat.runs.run_folder import read_json
from uiat.runs.saved import choose_model
from uiat.runs.weights import is_measured_on

Z_PASSES, Z_IMAGES = 2, 2000
"""Passes over training images, and how many of them, with which z is made."""
GROUPS = ("all", "easier", "harder")
NO_CLASS = "NaN"
"""What is shown for the class of logits with a NaN."""
FRIENDLY = ("UIAT", "UIATOneOff", "IAT")
"""Methods that are trained with inverse adversaries."""


@dataclass(frozen=True)
class SummaryOptions:
    """What is looked at."""

    n: int = 1000
    """How many test images are measured, at most; the first ones."""
    examples: int = 40
    """How many of them can be moved from friend to enemy, at most."""
    attack: str = "pgd-20"
    """The attack of the curve and of the confusion."""
    beta: float = 0.0
    """β of Eq. 4 for the friend's side and for z; 0: cross-entropy alone, which makes the true class likelier."""
    data: tuple[str, ...] = ()
    """Custom data of the runs, as `module:callable`: only code that is named here, too, is imported."""
    model: tuple[str, ...] = ()
    """Custom networks of the runs, as `module:callable`."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto is the GPU if there is one."""
    data_dir: str | None = None
    """Where data sets are looked for; else $UIAT_DATA, else a cache folder."""

    def __post_init__(self) -> None:
        require(self, n=Range(2, whole=True), examples=COUNT, beta=WEIGHT)


@dataclass(frozen=True)
class CurveLine:
    """Accuracy against ε of all images, and of the easier and the harder half."""

    grid: tuple[float, ...]
    accuracy: dict[str, list[float]]
    interval: dict[str, list[tuple[float, float]]]
    attack: str
    n: int
    source: str
    """Where the numbers come from."""


@dataclass(frozen=True)
class UniversalEffect:
    """z of each class, and what it does to natural images of that class."""

    z: Tensor
    eps: float
    source: str
    classes: dict[str, dict[str, Any]]
    """By class: n, accuracies, and the shares of images whose cross-entropy falls."""
    overall: dict[str, Any]

    def picture(self, label: int) -> Tensor:
        """Return z of a class as a uint8 image: grey is no change, black and white are −ε' and ε'."""
        return (128 + (self.z[label] / self.eps * 127).round()).clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class NetworkSummary:
    """All that was found for one run."""

    run: Run
    images: Images
    eps: float
    norm: str
    attack: str
    curve: CurveLine
    natural: Tensor
    """Confusion on natural images: (true class, predicted class) counts; a last column for NaN, where there are any."""
    attacked: Tensor
    """The same under the attack; images that are wrong without it are left as they are."""
    universal: UniversalEffect
    frames: Frames

    def verdict(self, example: int, frame: int, label: int) -> tuple[str, float, bool]:
        """Return what the network takes a frame for, how likely its true class is, and whether that is right."""
        guess = int(self.frames.guess[example, frame])
        return (*self.images.classes, NO_CLASS)[guess], float(self.frames.p[example, frame, label]), guess == label

    def by_class(self) -> list[tuple[str, int, float, float]]:
        """Return each class that has images: their number, natural and attacked accuracy."""
        n = self.natural.sum(dim=1).tolist()
        right = zip(self.images.classes, n, self.natural.diag().tolist(), self.attacked.diag().tolist(), strict=True)
        return [(name, count, a / count, b / count) for name, count, a, b in right if count]


class NetworkSummarizer:
    """Looks at runs one by one; data is loaded once for all runs that share it."""

    def __init__(self, options: SummaryOptions):
        self.options = options
        self._splits: dict[Any, data.Splits] = {}

    def open(self, run: Run) -> LoadedSubject:
        """Load a run's network and its test images."""
        config, options = run.config, self.options
        name, target = config.data.name, getattr(config.model, "target", "")
        choose_data(name, name if name in options.data else None, run.folder.path)
        choose_model(config.model, target if target in options.model else "", run.folder.path)
        if config.data not in self._splits:
            self._splits[config.data] = data.load_splits(
                find_data(run.folder, config.data, options.data), options.data_dir
            )
        subject = Subject(config.data, config.model, device=options.device, data_dir=options.data_dir)
        ready = prepare(run.folder.path, subject, self._splits[config.data])
        return replace(ready, images=ready.images.part(0, min(options.n, len(ready.images))))

    def choose(self, ready: LoadedSubject) -> tuple[Tensor, Tensor]:
        """Return the places of the examples, and which of them are in the network's easier half.

        Classes take turns, and within each class the easier and the harder half do.
        """
        losses = natural_losses(ready.fast, ready.images, batch_size=256, device=ready.device)
        easier, y = easier_half(losses), ready.images.y
        turns = {}
        for label in y.unique().tolist():
            for half in (True, False):
                for turn, place in enumerate(((y == label) & (easier == half)).nonzero().flatten().tolist()):
                    turns[place] = (turn, not half, label)
        places = sorted(sorted(turns, key=lambda place: turns[place])[: self.options.examples])
        return torch.tensor(places), easier[places]

    def look(self, run: Run, ready: LoadedSubject, places: Tensor) -> NetworkSummary:
        """Measure a network, and make the frames of the examples at `places`."""
        options, images, base = self.options, ready.images, ready.base
        walk = Walk(base.eps, base.norm, options.beta)
        natural, attacked = _confusions(ready, options.attack)
        return NetworkSummary(
            run,
            images,
            base.eps,
            base.norm,
            options.attack,
            _kept_curve(run, options.attack) or _curve(ready, options.attack),
            natural,
            attacked,
            _universal(ready, options.beta),
            make_frames(ready.model, ready.fast, images.take(places), walk, ready.device),
        )


def _curve(ready: LoadedSubject, attack: str) -> CurveLine:
    classes = ready.images.spec.num_classes
    # Fewer points below 0, where every image is moved, and not only those that are classified right.
    grid = [eps for k, eps in enumerate(default_grid(ready.base.eps)) if k not in (1, 3)]
    points = plan_points(grid, attack, ready.base, num_classes=classes, seed=0)
    curve = measure(ready.fast, ready.images, points, device=ready.device)
    groups = {name: [(int(row.sum()), len(row)) for row in rows] for name, rows in curve.groups().items()}
    accuracy = {name: [right / n for right, n in counts] for name, counts in groups.items()}
    interval = {name: [wilson(right, n) for right, n in counts] for name, counts in groups.items()}
    return CurveLine(curve.grid, accuracy, interval, attack, len(ready.images), "measured for this page")


def _kept_curve(run: Run, attack: str) -> CurveLine | None:
    """Return the curve that `uiat curves` left in the run, if it is of the same kind."""
    path = run.folder.path / "curves" / "curves.json"
    try:
        saved = read_json(path) if path.exists() else {}
        file = run.folder.weights("best")
        if saved.get("attack") != attack or saved.get("weights") != file.name or not is_measured_on(saved, file):
            return None
        accuracy = {name: list(map(float, saved["accuracy"][name])) for name in GROUPS}
        interval = {name: [(float(a), float(b)) for a, b in saved["interval95"][name]] for name in GROUPS}
        grid = tuple(map(float, saved["grid"]))
        if not grid or any({len(accuracy[name]), len(interval[name])} != {len(grid)} for name in GROUPS):
            return None
        return CurveLine(grid, accuracy, interval, attack, int(saved["n"]), "from `uiat curves`")
    except (UserError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _confusions(ready: LoadedSubject, attack: str) -> tuple[Tensor, Tensor]:
    images, classes = ready.images, ready.images.spec.num_classes
    result = run_suite(ready.fast, images, [attack], ready.base, device=ready.device, keep=True)
    x_adv = result.attacks[attack].x_adv
    assert x_adv is not None
    return tuple(_confusion(ready, x, classes) for x in (to_unit(images.x), x_adv))  # type: ignore[return-value]


def _confusion(ready: LoadedSubject, x: Tensor, classes: int) -> Tensor:
    with crafting(ready.fast, "eval") as network, torch.no_grad():
        guesses = torch.cat([predictions(network(part.to(ready.device))).cpu() for part in x.split(256)])
    columns = classes + bool((guesses == classes).any())
    return (ready.images.y * columns + guesses).bincount(minlength=classes * columns).reshape(classes, columns)


def _universal(ready: LoadedSubject, beta: float) -> UniversalEffect:
    assert ready.run is not None
    settings = inverse_settings(ready.run.read_config().method, ready.base, beta=beta)
    universal = make_z(ready.model, ready.train, settings, passes=Z_PASSES, count=Z_IMAGES, device=ready.device)
    nowhere = torch.empty(0, dtype=torch.long)
    inverses = make_inverses(ready.model, ready.fast, ready.images, settings, universal.z, nowhere, device=ready.device)
    table = inverses.table(ready.images.classes)
    return UniversalEffect(universal.z, settings.universal.eps, universal.source, table["classes"], table["overall"])


def chosen_runs(runs: Sequence[Run], most: int) -> list[Run]:
    """Return the runs to look at, at most `most`: those with weights, on the same data, one of each method first.

    A run that was trained with inverse adversaries comes before all others.
    """
    candidates = [run for run in runs if run.has_weights]
    kinds = [run.data for run in candidates]
    candidates = [run for run in candidates if run.data == max(kinds, key=kinds.count)]
    firsts = {run.kind: run for run in reversed(candidates)}
    order = [firsts[kind] for kind in FRIENDLY if kind in firsts]
    order += [run for run in candidates if firsts[run.kind] is run] + candidates
    return list(dict.fromkeys(order))[:most]
