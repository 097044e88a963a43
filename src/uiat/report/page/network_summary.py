"""Measurements of a run for the report: accuracy against ε, confusion, z of each class, and frames of examples."""

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
from uiat.evaluation.subject import LoadedSubject, Subject, load_subject
from uiat.evaluation.suite import run_suite
from uiat.fields import COUNT, WEIGHT, Range, require
from uiat.progress import print_message
from uiat.report.page.frames import Frames, Walk, make_frames
from uiat.report.page.runs import Run
from uiat.runs.identity import choose_data, find_data
from uiat.runs.run_folder import read_json
from uiat.runs.saved import choose_model
from uiat.runs.weights import is_measured_on

Z_PASSES, Z_IMAGES = 2, 2000
"""Passes over training images, and how many of them, from which z is computed."""
GROUPS = ("all", "easier", "harder")
NO_CLASS = "NaN"
"""The class that is shown for logits with a NaN."""
INVERSE_METHODS = ("UIAT", "UIATOneOff", "IAT")
"""Methods that train with inverse adversarial examples, the ones to show first."""


@dataclass(frozen=True)
class SummaryOptions:
    """What the report measures."""

    n: int = 1000
    """Largest number of test images to measure; the first ones are taken."""
    examples: int = 40
    """Largest number of examples to show at every ε."""
    attack: str = "pgd-20"
    """The attack of the curve and of the confusion matrix."""
    beta: float = 0.0
    """β of Eq. 4 for inverse perturbations and for z; 0: cross-entropy alone, which makes the true class likelier."""
    data: tuple[str, ...] = ()
    """Custom data of the runs, as `module:callable`: code is imported only if it is named here."""
    model: tuple[str, ...] = ()
    """Custom networks of the runs, as `module:callable`."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto is the GPU if there is one."""
    data_dir: str | None = None
    """Folder of data sets; by default $UIAT_DATA, or a cache folder."""

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
    """z of each class, and its effect on natural images of that class."""

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
    """The measurements of one run."""

    run: Run
    images: Images
    eps: float
    norm: str
    attack: str
    curve: CurveLine
    natural: Tensor
    """Confusion on natural images: (true class, predicted class) counts; a last column for NaN, where there are any."""
    attacked: Tensor
    """The same under the attack; images that are misclassified without it are not attacked."""
    universal: UniversalEffect
    frames: Frames

    def verdict(self, example: int, frame: int, label: int) -> tuple[str, float, bool]:
        """Return the predicted class of a frame, the probability of its true class, and whether they agree."""
        guess = int(self.frames.guess[example, frame])
        return (*self.images.classes, NO_CLASS)[guess], float(self.frames.p[example, frame, label]), guess == label

    def by_class(self) -> list[tuple[str, int, float, float]]:
        """Return each class that has images: their number, natural and attacked accuracy."""
        n = self.natural.sum(dim=1).tolist()
        right = zip(self.images.classes, n, self.natural.diag().tolist(), self.attacked.diag().tolist(), strict=True)
        return [(name, count, a / count, b / count) for name, count, a, b in right if count]


class NetworkSummarizer:
    """Measures runs one by one; data is loaded once for all runs that share it."""

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
        named = Subject(config.data, config.model, device=options.device, data_dir=options.data_dir)
        subject = load_subject(run.folder.path, named, self._splits[config.data])
        return replace(subject, images=subject.images.part(0, min(options.n, len(subject.images))))

    def choose_examples(self, subject: LoadedSubject) -> tuple[Tensor, Tensor]:
        """Return the positions of the examples to show, and which of them are in the easier half.

        Classes take turns, and within each class the easier and the harder half do.
        """
        losses = natural_losses(subject.fast, subject.images, batch_size=256, device=subject.device)
        easier, y = easier_half(losses), subject.images.y
        turns = {}
        for label in y.unique().tolist():
            for half in (True, False):
                for turn, position in enumerate(((y == label) & (easier == half)).nonzero().flatten().tolist()):
                    turns[position] = (turn, not half, label)
        positions = sorted(sorted(turns, key=lambda position: turns[position])[: self.options.examples])
        return torch.tensor(positions), easier[positions]

    def summarize(self, run: Run, subject: LoadedSubject, positions: Tensor) -> NetworkSummary:
        """Measure a network, and generate the frames of the examples at `positions`."""
        options, images, base = self.options, subject.images, subject.base
        walk = Walk(base.eps, base.norm, options.beta)
        natural, attacked = _confusions(subject, options.attack)
        return NetworkSummary(
            run,
            images,
            base.eps,
            base.norm,
            options.attack,
            _kept_curve(run, options.attack) or _curve(subject, options.attack),
            natural,
            attacked,
            _universal(subject, options.beta),
            make_frames(subject.model, subject.fast, images.take(positions), walk, subject.device),
        )


def _curve(subject: LoadedSubject, attack: str) -> CurveLine:
    classes = subject.images.spec.num_classes
    # Fewer points below 0, where all images are perturbed and not only the correctly classified ones.
    grid = [eps for k, eps in enumerate(default_grid(subject.base.eps)) if k not in (1, 3)]
    points = plan_points(grid, attack, subject.base, num_classes=classes, seed=0)
    curve = measure(subject.fast, subject.images, points, device=subject.device)
    groups = {name: [(int(row.sum()), len(row)) for row in rows] for name, rows in curve.groups().items()}
    accuracy = {name: [right / n for right, n in counts] for name, counts in groups.items()}
    interval = {name: [wilson(right, n) for right, n in counts] for name, counts in groups.items()}
    return CurveLine(curve.grid, accuracy, interval, attack, len(subject.images), "measured for this report")


def _kept_curve(run: Run, attack: str) -> CurveLine | None:
    """Return the curve that `uiat curves` saved in the run, if it is of the same weights and attack."""
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


def _confusions(subject: LoadedSubject, attack: str) -> tuple[Tensor, Tensor]:
    images, classes = subject.images, subject.images.spec.num_classes
    result = run_suite(subject.fast, images, [attack], subject.base, device=subject.device, keep=True)
    x_adv = result.attacks[attack].x_adv
    assert x_adv is not None
    return tuple(_confusion(subject, x, classes) for x in (to_unit(images.x), x_adv))  # type: ignore[return-value]


def _confusion(subject: LoadedSubject, x: Tensor, classes: int) -> Tensor:
    with crafting(subject.fast, "eval") as network, torch.no_grad():
        guesses = torch.cat([predictions(network(part.to(subject.device))).cpu() for part in x.split(256)])
    columns = classes + bool((guesses == classes).any())
    return (subject.images.y * columns + guesses).bincount(minlength=classes * columns).reshape(classes, columns)


def _universal(subject: LoadedSubject, beta: float) -> UniversalEffect:
    assert subject.run is not None
    settings = inverse_settings(subject.run.read_config().method, subject.base, beta=beta)
    universal = make_z(subject.model, subject.train, settings, passes=Z_PASSES, count=Z_IMAGES, device=subject.device)
    nowhere = torch.empty(0, dtype=torch.long)
    inverses = make_inverses(
        subject.model, subject.fast, subject.images, settings, universal.z, nowhere, device=subject.device
    )
    table = inverses.table(subject.images.classes)
    return UniversalEffect(universal.z, settings.universal.eps, universal.source, table["classes"], table["overall"])


def summarize_runs(runs: Sequence[Run], options: SummaryOptions) -> tuple[list[NetworkSummary], Tensor, Tensor]:
    """Measure each run; return the measurements, the positions of the examples, and which are in the easier half.

    All runs get frames of the same examples, which are split into halves by the losses of the first network.
    """
    summarizer = NetworkSummarizer(options)
    summaries: list[NetworkSummary] = []
    positions = easier = torch.empty(0, dtype=torch.long)
    for k, run in enumerate(runs):
        print_message(f"measuring {run.name} ({k + 1} of {len(runs)})")
        subject = summarizer.open(run)
        if not summaries:
            positions, easier = summarizer.choose_examples(subject)
        summaries.append(summarizer.summarize(run, subject, positions))
    return summaries, positions, easier


def chosen_runs(runs: Sequence[Run], most: int) -> list[Run]:
    """Return the runs to measure, at most `most`: those with weights, on the same data, one of each method first.

    A run that was trained with inverse adversarial examples comes before all others.
    """
    candidates = [run for run in runs if run.has_weights]
    kinds = [run.data for run in candidates]
    candidates = [run for run in candidates if run.data == max(kinds, key=kinds.count)]
    firsts = {run.kind: run for run in reversed(candidates)}
    order = [firsts[kind] for kind in INVERSE_METHODS if kind in firsts]
    order += [run for run in candidates if firsts[run.kind] is run] + candidates
    return list(dict.fromkeys(order))[:most]
