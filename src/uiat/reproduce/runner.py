"""Working through a plan: every cell once, whoever does it, and a failure stops nothing but itself."""

import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import torch

from uiat.engine.signals import StopSignal
from uiat.errors import UserError
from uiat.io import write_json
from uiat.reproduce.attempts import in_words
from uiat.reproduce.cell import Cell
from uiat.reproduce.helpers import helper_store
from uiat.reproduce.store import Store
from uiat.reproduce.work import Stopped, do

WAIT_SECONDS = 0.5
"""How often a process that has nothing left to begin looks at what others are doing."""


@dataclass(frozen=True)
class Worker:
    """A process that does cells."""

    out: Path
    device: torch.device
    data_dir: str | None
    stop: StopSignal
    say: Callable[[str], None]
    call: str = field(default_factory=lambda: uuid4().hex)
    """The call of the command that this process works for: within one, a cell that failed is not tried again."""

    def work_through(self, cells: Sequence[Cell]) -> None:
        """Do all cells that are not finished, helpers among them.

        One that another process holds, or whose helper another process makes, is looked at again at the end.
        """
        left = self.left(cells)
        total, before, waited = len(left), len(left) + 1, 0
        while left:
            if len(left) == before:  # all of them are held by others
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
        """Return what is neither finished nor failed in this call."""
        stores = [Store(cell, self.out) for cell in cells]
        return [store for store in stores if not store.finished and not self._failed(store)]

    def _failed(self, store: Store) -> str:
        try:
            found = json.loads(store.failure.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):  # there is none, or another command just finished the run
            return ""
        return str(found["reason"]) if found["call"] == self.call else ""

    def _waits(self, store: Store) -> bool:
        """Whether a run cannot begin yet: its helper is neither trained nor given up."""
        helper = None if store.trained else helper_store(store)
        return helper is not None and not helper.trained and not self._failed(helper)

    def _try(self, store: Store, place: str) -> None:
        with store.hold() as held:
            if not held or store.finished:
                return
            self.say(f"{place}: {store.path.name}")
            try:
                with redirect_stdout(sys.stderr):  # the epochs of a run are progress here: stdout is for tables
                    do(store, self.device, self.data_dir, self.stop)
                store.failure.unlink(missing_ok=True)
            except (Stopped, KeyboardInterrupt):
                raise
            except Exception as error:
                self._fail(store, error)

    def _fail(self, store: Store, error: Exception) -> None:
        words = in_words(error)
        self.say(f"failed: {store.path.name}: {words}")
        if not isinstance(error, UserError):
            traceback.print_exc(file=sys.stderr)
        write_json(store.failure, {"reason": words, "call": self.call})
