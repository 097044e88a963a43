"""A cell: one run, keyed by its full configuration, and what is measured on it. Equal keys are one run."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from uiat.config import AnyConfig
from uiat.methods import METHODS
from uiat.reproduce.learning import Watch
from uiat.reproduce.measures import Measure
from uiat.reproduce.results_version import stamped
from uiat.serialize import encode, to_json


@dataclass(frozen=True)
class Cell:
    """A run and its measurements."""

    config: AnyConfig
    measures: tuple[Measure, ...] = ()
    watch: Watch | None = None
    """Whether accuracies on train and test are measured after every epoch; such a run has a key of its own."""
    labels: tuple[str, ...] = field(default=(), compare=False)
    """What it is called in each table and figure that needs it; no part of its key."""

    @cached_property
    def key(self) -> str:
        """The digest of the configuration and of the version of the numbers."""
        facts = stamped({"config": to_json(self.config, key=True), "watch": encode(self.watch)})
        text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """The folder's name: data and method for people, then the key."""
        data = re.sub(r"\W+", "-", Path(self.config.data.name).stem)
        return f"{data}-{method_name(self.config)}-s{self.config.seed}-{self.key}"

    def at_seed(self, seed: int) -> "Cell":
        """Return the same cell with another seed."""
        return replace(self, config=replace(self.config, seed=seed))

    def labelled(self, *labels: str) -> "Cell":
        """Return the same cell under these labels."""
        return replace(self, labels=labels)

    def folder(self, out: Path) -> Path:
        """Return where the run is, or will be."""
        return out / "runs" / self.name


def method_name(config: AnyConfig) -> str:
    """Return the registered name of a configuration's method, whatever its numbers are."""
    method = config.method
    for name, known in METHODS.items():
        same = type(known) is type(method) and all(
            type(getattr(known, part, None)) is type(getattr(method, part, None)) for part in ("attack", "inverse")
        )
        plugged = [getattr(getattr(part, "uiat", None), "enabled", None) for part in (known, method)]
        if same and plugged[0] == plugged[1]:
            return name
    return type(method).__name__.lower()


def merge(cells: Iterable[Cell]) -> list[Cell]:
    """Return every run once, in the order of first mention, with all its labels and all that is measured on it."""
    found: dict[str, Cell] = {}
    for cell in cells:
        before = found.get(cell.key)
        both = (cell,) if before is None else (before, cell)
        measures, labels = (
            tuple(dict.fromkeys(entry for one in both for entry in getattr(one, part)))
            for part in ("measures", "labels")
        )
        found[cell.key] = replace(cell, measures=measures, labels=labels)
    return list(found.values())
