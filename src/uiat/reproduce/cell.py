"""Cells: runs keyed by their full configuration, with their measurements, helper and files.

HAT's helpers are cells, too: equal helpers are one run, to which every HAT run links.
"""

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from uiat.config import AnyConfig
from uiat.config_json import encode, to_json
from uiat.engine.setup import helper_config
from uiat.errors import UserError
from uiat.io import reason, write_json, write_tensors
from uiat.locks import is_locked, open_locked
from uiat.methods import METHODS
from uiat.reproduce.measures import Measure, Result, Watch, measure_key, with_results_version
from uiat.runs.published import epochs_without_times, published_file, readable_folder, unpack_run
from uiat.runs.run_folder import RunFolder, read_json
from uiat.runs.weights import is_measured_on


@dataclass(frozen=True)
class Cell:
    """A run and its measurements."""

    config: AnyConfig
    measures: tuple[Measure, ...] = ()
    watch: Watch | None = None
    """How learning curves are measured after every epoch, if at all; part of the key."""
    labels: tuple[str, ...] = field(default=(), compare=False)
    """Its name in each table and figure that needs it; not part of its key."""

    @cached_property
    def key(self) -> str:
        """The digest of the configuration and of the version of the numbers."""
        facts = with_results_version({"config": to_json(self.config, key=True), "watch": encode(self.watch)})
        text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """The name of the folder: data, method, seed and key."""
        data = re.sub(r"\W+", "-", Path(self.config.data.name).stem)
        return f"{data}-{method_name(self.config)}-s{self.config.seed}-{self.key}"

    def at_seed(self, seed: int) -> "Cell":
        """Return the same cell with another seed."""
        return replace(self, config=replace(self.config, seed=seed))

    def labelled(self, *labels: str) -> "Cell":
        """Return the same cell under these labels."""
        return replace(self, labels=labels)


def method_name(config: AnyConfig) -> str:
    """Return the registered name of a configuration's method, regardless of its hyper-parameters."""
    method = config.method
    for name, known in METHODS.items():
        parts = ((known, method), (known.attack, method.attack), (known.inverse, method.inverse))
        if all(type(registered) is type(given) for registered, given in parts):
            return name
    return type(method).__name__.lower()


def merge(cells: Iterable[Cell]) -> list[Cell]:
    """Return every run once, in the order of first mention, with all labels and measurements merged."""
    by_key: dict[str, Cell] = {}
    for cell in cells:
        before = by_key.get(cell.key, replace(cell, measures=(), labels=()))
        measures, labels = before.measures + cell.measures, before.labels + cell.labels
        by_key[cell.key] = replace(cell, measures=tuple(dict.fromkeys(measures)), labels=tuple(dict.fromkeys(labels)))
    return list(by_key.values())


class Store:
    """The files of one cell: a run folder, or the one file of a published run (`uiat.runs.published`)."""

    def __init__(self, cell: Cell, out: Path):
        self.cell, self.out, self.path = cell, out, out / "runs" / cell.name
        self.folder = RunFolder(self.path)
        self.failure = self.path / "failed.json"
        self.before = self.path / "before"
        """Metrics and measurements of a run that is trained again."""

    @property
    def run(self) -> RunFolder:
        """The folder of the run; where it is only published, a temporary copy to read from."""
        readable = readable_folder(self.path)
        return self.folder if readable == self.path else RunFolder(readable)

    @property
    def measures(self) -> Path:
        """The folder of the run's measurements."""
        return self.run.path / "measures"

    def unpack(self) -> None:
        """Make a run that is only published a folder, so that it can be written."""
        if self.run.path != self.path:
            unpack_run(published_file(self.path), self.path)

    def weights(self, which: str = "best") -> Path:
        """Return the path of the run's weights, `best` or `last`, whether they exist or not."""
        run, averaged = self.run, self.cell.config.train.averaging.enabled
        if which == "best":
            return run.best_averaged if averaged else run.best
        return run.last_averaged if averaged else run.last

    @property
    def trained(self) -> bool:
        """Whether the run is finished: its card is written last (an evaluation before that leaves one without it)."""
        return self.run.is_finished

    @property
    def finished(self) -> bool:
        """Whether the run is trained and all its measurements are there."""
        return self.trained and all(self.has(measure) for measure in self.cell.measures)

    def has(self, measure: Measure) -> bool:
        """Whether a measurement of the run's weights exists: its JSON is written last."""
        path = self._file(measure, "json")
        return path.exists() and self._is_present(measure.weights, path)

    def _is_present(self, weights: str, path: Path) -> bool:
        """Whether a measurement is of the weights of the run; true without weights, as in a published run."""
        run = self.run
        if not (run.best.exists() or run.last.exists()):
            return True
        return is_measured_on(read_json(path), self.weights(weights))

    def lacks_weights(self) -> bool:
        """Whether a measurement is missing and so are the weights, such as on a published run."""
        left = [measure for measure in self.cell.measures if not self.has(measure)]
        return self.trained and any(not self.weights(measure.weights).is_file() for measure in left)

    def begin_again(self) -> None:
        """Remove what was trained; metrics and measurements are moved aside for `restore_measurements`.

        The configuration stays.
        """
        self.before.mkdir(exist_ok=True)
        for known in (self.measures, self.run.metrics):
            if known.exists():
                shutil.rmtree(self.before / known.name, ignore_errors=True)
                os.replace(known, self.before / known.name)
        for file in (*self.path.glob("*.pt"), *self.path.glob("*.safetensors"), self.run.result):
            file.unlink(missing_ok=True)

    def restore_measurements(self) -> bool:
        """Restore the measurements from before the run was trained again, if it is the same run; return whether it is.

        The same run has the weights that were measured, and equal metrics in every epoch but for times, to the last
        digit.
        """
        earlier, measures = RunFolder(self.before), self.before / self.measures.name
        same = (
            measures.is_dir()
            and earlier.metrics.exists()
            and epochs_without_times(earlier.read_metrics()) == epochs_without_times(self.run.read_metrics())
        )
        known = [(m.weights, measures / self._file(m, "json").name) for m in self.cell.measures]
        same = same and all(self._is_present(weights, path) for weights, path in known if path.exists())
        if same:
            self.measures.mkdir(exist_ok=True)
            for file in measures.iterdir():
                os.replace(file, self.measures / file.name)
        shutil.rmtree(self.before, ignore_errors=True)
        return same

    def ledger(self, measure: Measure) -> Path:
        """Return the file of an unfinished measurement."""
        return self._file(measure, "unfinished.safetensors")

    def keep(self, measure: Measure, result: Result) -> None:
        """Write a measurement."""
        facts, tensors = result
        write_tensors(self._file(measure, "safetensors"), tensors)
        write_json(self._file(measure, "json"), facts)
        self.ledger(measure).unlink(missing_ok=True)

    def read(self, measure: Measure) -> dict[str, Any] | None:
        """Return the facts of a measurement; `None` if it does not exist."""
        path = self._file(measure, "json")
        return read_json(path) if path.exists() else None

    def tensors(self, measure: Measure) -> dict[str, Tensor]:
        """Return a measurement's tensors."""
        return load_file(self._file(measure, "safetensors"))

    @cached_property
    def card(self) -> dict[str, Any]:
        """The run's result card."""
        card: dict[str, Any] = read_json(self.run.result)
        return card

    def _file(self, measure: Measure, ending: str) -> Path:
        return self.measures / f"{measure_key(measure)}.{ending}"

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Lock the cell for this process if no other has; the system unlocks it however the process ends."""
        try:
            handle = _open_lock(self.path / "cell.lock")
        except BlockingIOError:
            yield False
            return
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, platform.node().encode(), 0)
            yield True
        finally:
            os.close(handle)


def _open_lock(file: Path, *, wait: bool = False) -> int:
    """Lock a file in a folder, which is created if needed, and return its descriptor."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return open_locked(file, wait=wait)
    except BlockingIOError:
        raise
    except OSError as error:
        raise UserError(f"cannot write the folder {file.parent}: {reason(error)}; choose another --out.") from None


def held_here(out: Path) -> list[str]:
    """Return the names of the runs that other processes of this machine are working on."""
    names = []
    for lock in sorted(out.glob("runs/*/cell.lock")):
        with suppress(OSError):
            if is_locked(lock) and lock.read_text("utf-8", "replace") in ("", platform.node()):
                names.append(lock.parent.name)
    return names


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Wait until no other command writes tables and figures into the folder, and keep others waiting."""
    handle = _open_lock(out / "output.lock", wait=True)
    try:
        yield
    finally:
        os.close(handle)


def common_seeds(cells: Sequence[Cell], out: Path, seeds: int, measure: Measure | None = None) -> list[list[Store]]:
    """Return the finished runs of some cells for each seed at which all of them are finished: trained, and measured."""
    rows = [[Store(cell.at_seed(seed), out) for cell in cells] for seed in range(seeds)]
    return [row for row in rows if all(s.trained and (measure is None or s.has(measure)) for s in row)]


def seed_stores(cell: Cell, out: Path, seeds: int, measure: Measure | None = None) -> list[Store]:
    """Return the finished runs of a cell, seed by seed."""
    return [row[0] for row in common_seeds([cell], out, seeds, measure)]


def helper_cell(cell: Cell) -> Cell | None:
    """Return the run that trains a cell's helper; `None` if it needs none, or one that no other run can share."""
    method = cell.config.method
    if not method.needs_helper or method.helper or cell.config.init:
        return None
    return Cell(helper_config(cell.config, method, RunFolder(".")), labels=("HAT's helper",))


def helper_store(store: Store) -> Store | None:
    """Return the store of a cell's helper; `None` if it needs none, or has one in its own folder."""
    helper, folder = helper_cell(store.cell), store.run.helper
    if helper is None or (folder.is_dir() and not folder.is_symlink()):
        return None
    return Store(helper, store.out)


def with_helpers(cells: Iterable[Cell], out: Path) -> list[Cell]:
    """Return cells with the helpers they need, each once and before the cells that need it."""
    needed = []
    for cell in cells:
        helper = helper_store(Store(cell, out))
        needed += [cell] if helper is None else [helper.cell, cell]
    return merge(needed)


def link_helper(store: Store) -> None:
    """Link the finished helper into a run, as the folder `helper`."""
    helper, link = helper_store(store), store.run.helper
    if helper is None or link.is_symlink():
        return
    if not helper.trained:
        raise UserError(f"its helper {helper.path.name} is not finished.")
    if not helper.weights().is_file():
        raise UserError(f"its helper {helper.path.name} has no weights, as published runs: choose another --out.")
    try:
        link.symlink_to(Path("..") / helper.path.name, target_is_directory=True)
    except OSError as error:
        raise UserError(f"cannot create the link {link}: {reason(error)}; choose another --out.") from None
