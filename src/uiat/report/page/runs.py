"""Runs for comparison and report: configuration, card, metrics and evaluations, read from their folders."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open
from torch import Tensor

from uiat.config import AnyConfig
from uiat.errors import UserError
from uiat.evaluation.evaluation_result import unpack_verdicts
from uiat.evaluation.intervals import wilson
from uiat.fields import show_number
from uiat.paths import suggest_path
from uiat.runs.published import open_published, readable_folder
from uiat.runs.records import EVALUATION_FIELDS, check_types
from uiat.runs.run_folder import RunFolder, Weights, read_json, read_record
from uiat.runs.weights import DIGEST, is_measured_on
from uiat.types import Clock

LABELS = {"Natural": "natural training", "UIATOneOff": "one-off UIAT", "SingleStep": "single step"}
"""Display names of methods that differ from the name of the class."""
RunState = Literal["finished", "training", "not finished"]
COMPARED_WEIGHTS: tuple[Weights, ...] = ("best", "last")
"""The weights whose evaluations are compared."""


@dataclass(frozen=True)
class Evaluation:
    """The accuracy of one run on test images, natural or under one attack."""

    attack: str
    eps: float
    """0 for natural images."""
    norm: str
    accuracy: float
    low: float
    high: float
    n: int
    weights: str
    """`best` or `last`."""
    images: tuple[Any, ...]
    """Equal for two evaluations of the same images."""
    verdicts: Tensor | None = None
    """Whether each image was classified correctly; `None` if the card does not have it."""
    per_class: dict[str, float] | None = None
    without_digest: bool = False
    """Whether the digest of the weights is missing, as in cards of earlier versions."""

    @property
    def threat(self) -> tuple[str, float, str]:
        """Attack, ε and norm, which two evaluations must share to be compared."""
        return self.attack, self.eps, self.norm

    @property
    def title(self) -> str:
        """The attack and its radius, formatted."""
        return show_threat(self.threat)


def show_threat(threat: tuple[str, float, str]) -> str:
    """Format an attack and its radius."""
    attack, eps, norm = threat
    sign = "" if norm == "linf" else " (L2)"
    return attack if attack == "natural" else f"{attack}, ε = {show_number(eps)}{sign}"


@dataclass(frozen=True, eq=False)
class Run:
    """One run, finished or not."""

    folder: RunFolder
    name: str
    """A short name, unique within the report."""
    config: AnyConfig
    saved: dict[str, Any]
    """The configuration as JSON."""
    card: dict[str, Any]
    epochs: tuple[dict[str, Any], ...]
    """The epoch lines of metrics.jsonl."""
    steps: tuple[dict[str, Any], ...]
    """The step lines of metrics.jsonl."""
    evaluations: tuple[Evaluation, ...]
    state: RunState
    others: int = 0
    """Number of evaluations that are skipped because they are of weights that the run no longer has."""

    @property
    def method(self) -> str:
        """The display name of the method."""
        kind = str(self.saved["method"]["kind"])
        uiat = self.saved["method"].get("uiat")
        plug_in = " + UIAT" if isinstance(uiat, dict) and uiat.get("enabled") else ""
        return LABELS.get(kind, kind) + plug_in

    @property
    def label(self) -> str:
        """The name for a reader: the method, after the name of the run unless the run is named after its method.

        So on a page, "natural" alone is never a run: it says which images an accuracy is measured on.
        """
        plain = self.method.removesuffix(" training").replace(" ", "-").lower()
        return self.method if self.name == plain else f"{self.name} ({self.method})"

    @property
    def kind(self) -> str:
        """The class of the method."""
        return str(self.saved["method"]["kind"])

    @property
    def progress(self) -> str:
        """The progress of a run that has no card yet; empty for a finished one."""
        if self.state == "finished":
            return ""
        done = self.epochs[-1]["epoch"] if self.epochs else 0
        state = "still training" if self.state == "training" else "not finished"
        return f"{state}: {done} of {self.config.train.epochs} epochs"

    @property
    def seconds(self) -> float | None:
        """Training time so far."""
        return self.card.get("training_seconds") or (self.epochs[-1].get("seconds") if self.epochs else None)

    @property
    def passes(self) -> int | None:
        """Forward and backward passes of single images in training, together."""
        counts = self.card.get("training_passes")
        return sum(counts.values()) if isinstance(counts, dict) else None

    @property
    def has_weights(self) -> bool:
        """Whether the run has weights to measure."""
        return self.folder.weights("best").is_file()

    @cached_property
    def data(self) -> tuple[Any, ...]:
        """Identity of the data: runs with equal values can be compared on the same images."""
        known = self.folder.read_data()
        config = self.config.data
        parts: list[Any] = [config.name, config.size, config.test_subset]
        return (*parts, json.dumps([known.get("classes"), known.get("shape"), known.get("test")]))

    @property
    def data_name(self) -> str:
        """The name of the data set; of custom data, the last part of its path."""
        return Path(self.config.data.name).name

    def natural(self) -> Evaluation | None:
        """Return the accuracy on natural images."""
        return next((e for e in self.evaluations if e.attack == "natural"), None)

    def under(self, threat: tuple[str, float, str] | None) -> Evaluation | None:
        """Return the accuracy under an attack."""
        return next((e for e in self.evaluations if e.threat == threat), None)

    def marks(self) -> dict[str, int]:
        """Return the epochs T and T' of the method, if it has them."""
        method, epochs = self.saved["method"], self.config.train.epochs
        part = {**method, **(method.get("uiat") or {})} if (method.get("uiat") or {}).get("enabled") else method
        momentum, one_off = part.get("momentum") or {}, part.get("one_off") or {}
        moments = {"T": momentum.get("start") if momentum.get("enabled") else None, "T'": one_off.get("epoch")}
        return {name: Clock(1, 0, epochs).epoch_at(when) for name, when in moments.items() if when is not None}


def read_runs(paths: Sequence[str]) -> list[Run]:
    """Read all runs of the given paths: run folders, or folders that `uiat reproduce` wrote."""
    folders = list(dict.fromkeys(folder for path in paths for folder in _folders(Path(path))))
    return [replace(run, name=name) for run, name in zip(map(_read, folders), _names(folders), strict=True)]


def _folders(path: Path) -> Iterable[Path]:
    path = open_published(path)
    if RunFolder(path).config.is_file():
        return [path]
    inner = [file.parent for file in sorted(path.glob("*/config.json"))]
    within = {file.parent for file in path.glob("runs/*/config.json")}
    within |= {file.with_suffix("") for file in path.glob("runs/*.json")}
    inner += map(readable_folder, sorted(within))
    if not inner:
        near = "" if path.exists() else suggest_path(path)
        raise UserError(
            f"{path} has no run: {near or 'give folders of `uiat train`, or one that `uiat reproduce` wrote.'}"
        )
    return inner


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest unique suffixes of the paths."""
    parts = [path.absolute().parts for path in folders]
    for length in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if max(Counter(names).values(), default=1) == 1:
            break
    return names


def _read(path: Path) -> Run:
    folder = RunFolder.open(path)
    saved, config, card = read_json(folder.config), folder.read_config(), folder.read_card()
    finished = "config" in card
    state: RunState = "finished" if finished else "training" if folder.is_locked() else "not finished"
    run = Run(
        folder,
        path.name,
        config,
        saved,
        card,
        tuple(folder.read_metrics("epoch", growing=True)),
        tuple(folder.read_metrics("step", growing=True)),
        (),
        state,
    )
    found = [*_from_card(run), *_from_measures(run)]
    present = tuple(evaluation for evaluation in found if evaluation is not None)
    return replace(run, evaluations=present, others=len(found) - len(present))


def _from_card(run: Run) -> Iterable[Evaluation | None]:
    """Return the evaluations in result.json on the data of the run, the latest first; `None` for other weights."""
    names = {run.folder.weights(which).name: which for which in COMPARED_WEIGHTS}
    for entry in reversed(run.card["evaluations"]):
        weights = names.get(str(entry.get("weights", "")))
        if weights and entry.get("data") == run.config.data.name:
            with suppress(KeyError, TypeError, ValueError):
                verdicts = unpack_verdicts(entry.get("verdicts", ""), int(entry["n"]))
                sample = entry["sample"]
                seed = entry.get("seed", 0) if sample == "balanced" else 0
                images = (run.data, sample, seed, entry["n"])
                yield _evaluation(run, entry, entry["attack"], weights, images, verdicts)


def _from_measures(run: Run) -> Iterable[Evaluation | None]:
    """Return the test accuracies that `uiat reproduce` saved for a run, those on the most images first.

    Of several on as many images, that with the smallest batches is first: the order of file names is that of hashes.
    `None` stands for one of other weights.
    """
    found: list[tuple[int, int, Evaluation | None]] = []
    for path in sorted((run.folder.path / "measures").glob("*.json")):
        entry = read_record(path, {})
        if "attack" not in entry or entry.get("split") != "test":  # a measurement of another kind
            continue
        check_types(path, entry, EVALUATION_FIELDS)
        verdicts = None
        with suppress(OSError, SafetensorError), safe_open(path.with_suffix(".safetensors"), framework="pt") as file:
            verdicts = file.get_tensor("correct").bool()
        with suppress(KeyError, TypeError, ValueError):
            images = (run.data, "reproduce", entry["n"])
            evaluation = _evaluation(run, entry, entry["attack"], entry["weights"], images, verdicts)
            found.append((-entry["n"], entry.get("batch_size", 0), evaluation))
    return [evaluation for *_, evaluation in sorted(found, key=lambda each: each[:2])]


def _evaluation(
    run: Run, entry: dict[str, Any], attack: str, weights: Weights, images: tuple[Any, ...], verdicts: Tensor | None
) -> Evaluation | None:
    file = run.folder.weights(weights) if weights in COMPARED_WEIGHTS else run.folder.best
    if not is_measured_on(entry, file):
        return None
    without_digest = DIGEST not in entry and file.is_file()
    n, accuracy = int(entry["n"]), float(entry["accuracy"])
    low, high = entry.get("interval95") or wilson(round(accuracy * n), n)
    eps, norm = float(entry.get("eps", 0.0)), str(entry.get("norm", "linf"))
    return Evaluation(
        attack,
        eps,
        norm,
        accuracy,
        float(low),
        float(high),
        n,
        weights,
        images,
        verdicts,
        entry.get("per_class"),
        without_digest,
    )
