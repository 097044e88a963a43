"""Doing one cell: train it, or go on training it, then measure what is not measured yet."""

from functools import lru_cache
from pathlib import Path

import torch

from uiat import data
from uiat.data.config import DataConfig
from uiat.engine.loop import train
from uiat.engine.signals import StopSignal
from uiat.errors import UserError
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.subject import Ready, Subject, prepare
from uiat.reproduce.helpers import link_helper
from uiat.reproduce.learning import Watcher
from uiat.reproduce.measures import Measure, measure_key
from uiat.reproduce.stand_in import ensure_generated
from uiat.reproduce.store import Store
from uiat.runs.card import environment
from uiat.runs.folder import RunFolder


class Stopped(Exception):
    """Somebody asked for a stop; all is saved."""


class PatientLedger(Ledger):
    """A ledger that hears a stop whenever it has saved."""

    def __init__(self, path: Path, key: str, stop: StopSignal):
        super().__init__(path, key)
        self.stop = stop

    def save(self) -> None:
        """Write all stages, then stop if asked to."""
        super().save()
        if self.stop.requested:
            raise Stopped


@lru_cache(maxsize=2)
def load(config: DataConfig, data_dir: str | None, training: bool) -> data.Splits:
    """Load data once for the runs that share it."""
    if training:
        ensure_generated(config, data_dir)
    return data.load(config, data_dir, training=training)


def do(store: Store, device: torch.device, data_dir: str | None, stop: StopSignal) -> None:
    """Finish a cell that this process holds; `Stopped` if it was asked to stop before."""
    splits = load(store.cell.config.data, data_dir, not store.trained)
    if not store.trained:
        _train(store, splits, device, stop)
    store.measures.mkdir(exist_ok=True)
    for measure in store.cell.measures:
        if store.has(measure):
            continue
        if stop.requested:
            raise Stopped
        ledger = PatientLedger(store.ledger(measure), measure_key(measure), stop)
        facts, tensors = measure.run(_ready(store, measure, splits, device, data_dir), ledger)
        store.keep(measure, ({**facts, "environment": environment(device)}, tensors))


def _train(store: Store, splits: data.Splits, device: torch.device, stop: StopSignal) -> None:
    cell = store.cell
    if not store.run.config.exists():
        RunFolder.create(store.path, cell.config)
    elif store.run.read_config() != cell.config:
        raise UserError(f"{store.path} holds a run of another configuration: choose another --out.")
    link_helper(store)
    watcher = Watcher(cell.watch, cell.config, splits, store.path, device) if cell.watch else None
    if stop.requested or not train(cell.config, store.run, splits, device, watcher, stop):
        raise Stopped


def _ready(store: Store, measure: Measure, splits: data.Splits, device: torch.device, data_dir: str | None) -> Ready:
    config, n = store.cell.config, measure.n
    if n is not None:
        n = min(n, len(splits.test))
    subject = Subject(
        config.data,
        config.model,
        weights=measure.weights,  # type: ignore[arg-type]
        n=n,
        sample="balanced",
        device=str(device),
        data_dir=data_dir,
    )
    return prepare(store.path, subject, splits)
