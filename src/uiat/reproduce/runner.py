"""Execution of a plan in this process: every cell is trained and measured once; a failure stops no other cell."""

import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

import torch

from uiat import data
from uiat.data.data_config import DataConfig
from uiat.engine.loop import train
from uiat.engine.signals import StopSignal
from uiat.errors import UserError
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.subject import LoadedSubject, Subject, load_subject
from uiat.io import write_json
from uiat.reproduce.cell import Cell, Store, helper_store, link_helper
from uiat.reproduce.measures import Attacked, Measure, Watcher, measure_key
from uiat.reproduce.scales import ensure_generated
from uiat.runs.result_card import environment
from uiat.runs.run_folder import RunFolder
from uiat.runs.weights import DIGEST

WAIT_SECONDS = 0.5
"""Pause between checks of a process that waits for others."""


class Stopped(Exception):
    """A stop was requested; all progress is saved."""


def error_line(error: Exception) -> str:
    """Return an error as one line: the message of a `UserError`, anything else with its type."""
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


class StoppableLedger(Ledger):
    """A ledger that stops the measurement after a save, once a stop is requested."""

    def __init__(self, path: Path, key: str, stop: StopSignal):
        super().__init__(path, key)
        self.stop = stop

    def save(self) -> None:
        """Write all stages; `Stopped` if a stop is requested."""
        super().save()
        if self.stop.requested:
            raise Stopped


AUTOATTACK_BEGIN = "apgd-ce+apgd-t"
"""The first two components of AutoAttack."""


def _is_autoattack(measure: Measure) -> bool:
    return isinstance(measure, Attacked) and measure.attack == "autoattack"


def begin_from_shorter(store: Store, measure: Attacked, ledger: Ledger) -> None:
    """Start AutoAttack from the verdicts of its first components, if these were measured on the same images."""
    shorter = replace(measure, attack=AUTOATTACK_BEGIN)
    facts = store.read(shorter)
    if facts is not None and store.has(shorter) and not ledger.stages:
        stage = ledger.begin(measure.attack, store.tensors(shorter)["correct"])
        stage.component, stage.seconds, stage.after = 2, facts["seconds"], facts["after"]


@lru_cache(maxsize=2)
def shared_splits(config: DataConfig, data_dir: str | None, training: bool) -> data.Splits:
    """Load the splits once for the runs that share them."""
    if training:
        ensure_generated(config, data_dir)
    return data.load_splits(config, data_dir, training=training)


@dataclass(frozen=True)
class Runner:
    """Trains and measures cells in this process."""

    out: Path
    device: torch.device
    data_dir: str | None
    stop: StopSignal
    say: Callable[[str], None]
    call: str = field(default_factory=lambda: uuid4().hex)
    """Id of the command that this process works for; a cell that failed is not retried within it."""

    def make_all(self, cells: Sequence[Cell]) -> None:
        """Complete all unfinished cells, including helpers; `Stopped` if a stop is requested.

        A cell that another process holds, or whose helper another process makes, is checked again at the end.
        """
        left = self.left(cells)
        total, before, waited = len(left), len(left) + 1, 0
        while left:
            if len(left) == before:  # other processes hold all of them
                if waited != len(left):
                    self.say(f"waiting for other processes: {', '.join(store.path.name for store in left)}")
                waited = len(left)
                time.sleep(WAIT_SECONDS)
            before = len(left)
            for store in left:
                if self.stop.requested:
                    raise Stopped
                if not store.finished and not self._waits(store):
                    self._try(store, f"run {cells.index(store.cell) + 1} of {len(cells)} ({total} were left)")
            left = self.left(cells)

    def failures(self, cells: Sequence[Cell]) -> dict[str, str]:
        """Return the cells that failed in this call, with their reasons."""
        stores = [Store(cell, self.out) for cell in cells]
        return {store.path.name: reason for store in stores if (reason := self._failed(store))}

    def left(self, cells: Sequence[Cell]) -> list[Store]:
        """Return the cells that are neither finished nor failed in this call."""
        stores = [Store(cell, self.out) for cell in cells]
        return [store for store in stores if not store.finished and not self._failed(store)]

    def _failed(self, store: Store) -> str:
        try:
            failure = json.loads(store.failure.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):  # there is none, or another command just finished the run
            return ""
        return str(failure["reason"]) if failure["call"] == self.call else ""

    def _waits(self, store: Store) -> bool:
        """Whether a run has to wait for its helper, which is neither trained nor failed."""
        helper = None if store.trained else helper_store(store)
        return helper is not None and not helper.trained and not self._failed(helper)

    def _try(self, store: Store, number: str) -> None:
        with store.hold() as held:
            if not held or store.finished:
                return
            self.say(f"{number}: {store.path.name}")
            try:
                with redirect_stdout(sys.stderr):  # the epochs of a run are progress here: stdout is for tables
                    self._make(store)
                store.failure.unlink(missing_ok=True)
            except (Stopped, KeyboardInterrupt):
                raise
            except Exception as error:
                line = error_line(error)
                self.say(f"failed: {store.path.name}: {line}")
                if not isinstance(error, UserError):
                    traceback.print_exc(file=sys.stderr)
                write_json(store.failure, {"reason": line, "call": self.call})

    def _make(self, store: Store) -> None:
        """Train and measure a cell that this process holds; `Stopped` if a stop is requested before it is finished."""
        store.unpack()
        store.run.check_links()
        if store.lacks_weights():
            self.say(f"{store.path.name} has no weights to measure: training again")
            store.begin_again()
        splits = shared_splits(store.cell.config.data, self.data_dir, not store.trained)
        if not store.trained:
            self._train(store, splits)
        if store.restore_measurements():
            self.say(f"{store.path.name} is the same run as before: its measurements are kept")
        store.measures.mkdir(exist_ok=True)
        for measure in sorted(store.cell.measures, key=_is_autoattack):  # last: it starts from its components' verdicts
            if store.has(measure):
                continue
            if self.stop.requested:
                raise Stopped
            subject = self._prepare(store, measure, splits)
            ledger = StoppableLedger(store.ledger(measure), f"{measure_key(measure)} {subject.digest}", self.stop)
            if isinstance(measure, Attacked) and _is_autoattack(measure):
                begin_from_shorter(store, measure, ledger)
            facts, tensors = measure.run(subject, ledger)
            store.keep(measure, ({**facts, DIGEST: subject.digest, "environment": environment(self.device)}, tensors))

    def _train(self, store: Store, splits: data.Splits) -> None:
        cell = store.cell
        if not store.run.config.exists():
            RunFolder.create(store.path, cell.config)
        elif store.run.read_config() != cell.config:
            raise UserError(f"{store.path} contains a run with another configuration: choose another --out.")
        link_helper(store)
        watcher = Watcher(cell.watch, cell.config, splits, store.path, self.device) if cell.watch else None
        if self.stop.requested or not train(cell.config, store.run, splits, self.device, watcher, self.stop):
            raise Stopped

    def _prepare(self, store: Store, measure: Measure, splits: data.Splits) -> LoadedSubject:
        config, n = store.cell.config, measure.n
        if isinstance(measure, Attacked) and measure.split == "unused":
            splits = replace(splits, test=data.unused(config.data, n or 1, self.data_dir))
        options = Subject(
            config.data,
            config.model,
            weights=measure.weights,  # type: ignore[arg-type]
            n=None if n is None else min(n, len(splits.test)),
            sample="balanced",
            batch_size=measure.batch_size,
            device=str(self.device),
            data_dir=self.data_dir,
        )
        return load_subject(store.path, options, splits)
