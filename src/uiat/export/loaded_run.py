"""A run loaded for export: its network with weights, configuration, data and results."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from uiat.config import AnyConfig
from uiat.errors import UserError, quoted
from uiat.runs.identity import find_network
from uiat.runs.provenance import edited_since
from uiat.runs.run_folder import RunFolder, Weights
from uiat.runs.saved import build, check_model, trained_on
from uiat.runs.weights import DIGEST, NO_DIGEST, OTHER_WEIGHTS, is_measured_on
from uiat.types import DataSpec


@dataclass(frozen=True)
class LoadedRun:
    """A run, its network with the chosen weights, and the content of its files."""

    run: RunFolder
    config: AnyConfig
    weights: Weights
    model: nn.Module
    """In eval mode, on the CPU, with the run's weights."""
    spec: DataSpec
    data: dict[str, Any]
    """Name of the data, classes, shape of an image, and size of each split."""
    result: dict[str, Any]
    """The run's result card; empty if there is none yet."""

    @property
    def file(self) -> Path:
        """The weights in the run folder."""
        return self.run.weights(self.weights)

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The evaluations of these weights in the result card."""
        return [entry for entry in self._of_file if is_measured_on(entry, self.file)]

    @property
    def notes(self) -> list[str]:
        """Notices for the user on the accuracies."""
        others, measure = len(self._of_file) - len(self.evaluations), f"uiat evaluate {quoted(self.run.path)}"
        return [
            *([f"{others} {OTHER_WEIGHTS}"] if others else []),
            *([f"the card has no accuracies; measure with: {measure}"] if not self.evaluations else []),
            *([f"the card {NO_DIGEST}"] if any(DIGEST not in entry for entry in self.evaluations) else []),
        ]

    @property
    def _of_file(self) -> list[dict[str, Any]]:
        entries = self.result.get("evaluations", [])
        needed = {"attack", "accuracy", "interval95", "n"}
        return [entry for entry in entries if entry.get("weights") == self.file.name and needed <= entry.keys()]

    @property
    def epoch(self) -> dict[str, Any]:
        """The metrics of the epoch that the weights are from; empty if unknown."""
        raw = self.config.train.averaging.enabled and self.weights.endswith("-raw")
        best = self.weights.startswith("best")
        if best and not raw and self.result.get("best"):
            return dict(self.result["best"])
        lines: list[dict[str, Any]] = []
        with suppress(ValueError):  # a killed run may leave an incomplete line
            lines = self.run.read_metrics("epoch")
        if not lines:
            return {}
        chosen = lines[-1]
        if best:
            chosen = max(lines, key=lambda line: float(line[f"val_{self.config.train.select}"]))
        prefix = "raw_" if raw else ""  # accuracies without the prefix are of the averaged network
        accuracies = {name: chosen[f"{prefix}{name}"] for name in ("val_natural", "val_robust")}
        return {"epoch": chosen["epoch"], **accuracies}


def load_run(path: Path, weights: Weights, data_dir: str | None, model: str = "") -> LoadedRun:
    """Load a run's network; the data set is read only if neither result card nor data.json describes it.

    `model` names a custom network, as `module:callable`; code that only the run names is not imported.
    """
    run = RunFolder.open(path)
    config = run.read_config()
    check_model(config.model, model, run.path)
    card = run.read_card()
    if edited := edited_since(config, card):
        raise UserError(f"{run.path}: {edited}. Restore it: its weights were trained with the values of result.json.")
    file = run.find_weights(weights)
    facts, spec = trained_on(run, config, data_dir)
    find_network(run, config.model)
    network = build(config.model, spec, file).requires_grad_(False)
    return LoadedRun(run, config, weights, network, spec, facts, card)
