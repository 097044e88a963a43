"""The folder of a run: how it is created, its files, and the lock that admits one writer."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import uuid4

from uiat import locks
from uiat.config import AnyConfig
from uiat.config_json import IMPORTS, RUN_ID, from_json, to_json
from uiat.errors import PeerLost, Resumable, UserError, quoted, unknown
from uiat.io import reason, remove_abandoned, write_json
from uiat.paths import suggest_path
from uiat.plugins import Import
from uiat.runs.records import (
    CARD_FIELDS,
    DATA_FIELDS,
    EVALUATION_FIELDS,
    IDENTITY_FIELDS,
    check_types,
    parse_imports,
    read_metrics,
)
from uiat.runs.run_lock import HELPER, check_links, disk_error, lock_run

PUBLISHED_MARK = ".published"
"""A file that marks the temporary copy of a published run, whose only weights stand for all."""
Weights = Literal["best", "last", "best-raw", "last-raw"]
"""Weights of the best or the last epoch, averaged if the run averages; `-raw`: never averaged."""


class RunFolder:
    """The files of one run (docs/runs.md lists their content)."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.data = self.path / "data.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoint = self.path / "checkpoint.pt"
        self.previous = self.path / "checkpoint.previous.pt"
        self.best = self.path / "best.safetensors"
        self.last = self.path / "last.safetensors"
        self.best_averaged = self.path / "best-averaged.safetensors"
        self.last_averaged = self.path / "last-averaged.safetensors"
        self.initial = self.path / "init.safetensors"
        self.result = self.path / "result.json"
        self.log = self.path / "log.txt"
        self.helper = self.path / HELPER
        self.lock_file = self.path / "lock"
        self._handle: int | None = None
        """The descriptor of the lock file while this object holds the lock."""

    @staticmethod
    def create(path: str | Path, config: AnyConfig, imports: tuple[Import, ...] = ()) -> "RunFolder":
        """Create a run in a new or empty folder; `imports` are the custom modules that it needs."""
        run = RunFolder(path)
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            write_json(run.config, _content(config, imports, uuid4().hex), exclusive=True)
        except OSError as error:
            run.check_free()
            raise UserError(f"cannot write the run folder {run.path}: {reason(error)}; choose another --out.") from None
        return run

    def check_free(self) -> None:
        """Raise an error if no run can be created here; called before anything costly."""
        if self.config.exists():
            resume = f"`uiat train --resume {quoted(self.path)}`"
            raise UserError(f"{self.path} already holds a run: resume it with {resume}, or choose another --out.")
        if self.path.is_file():
            raise UserError(f"cannot create the run folder {self.path}: a file has that name; choose another --out.")

    @staticmethod
    @contextmanager
    def begin(path: str | Path, config: AnyConfig, imports: tuple[Import, ...] = ()) -> Iterator["RunFolder"]:
        """Create a run; an error before the first training step removes the files that the run created.

        Other files are kept, and so is a run that can be resumed (`Resumable`, `PeerLost`).
        """
        run = RunFolder(path)
        made = [folder for folder in (run.path, *run.path.parents) if not os.path.lexists(folder)]
        before = set(os.listdir(run.path)) if run.path.is_dir() else set()
        RunFolder.create(path, config, imports)
        try:
            yield run
        except (Resumable, PeerLost):
            raise
        except Exception:
            if not (run.has_trained() or RunFolder(run.helper).has_trained()):
                run._remove(before, made)
            raise

    @staticmethod
    def open(path: str | Path) -> "RunFolder":
        """Return an existing run."""
        run = RunFolder(path)
        if not run.config.is_file():
            near = "" if run.path.exists() else suggest_path(run.path)
            advice = near or "give the --out folder of `uiat train`."
            raise UserError(f"{run.path} is not a run folder (it has no config.json): {advice}")
        return run

    def is_writable(self) -> bool:
        """Whether this process may create files in the folder."""
        return os.access(self.path, os.W_OK)

    def check_links(self) -> None:
        """Refuse to write a run that contains symbolic links: in a downloaded run, they could lead to any file."""
        check_links(self.path)

    def has_trained(self) -> bool:
        """Whether a training step was recorded: there is a checkpoint, or a line of metrics."""
        return self.has_checkpoint() or (self.metrics.exists() and self.metrics.stat().st_size > 0)

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint, damaged or not."""
        return self.checkpoint.exists() or self.previous.exists()

    def count_epochs(self) -> int:
        """Return how many epochs metrics.jsonl records."""
        return self.metrics.read_bytes().count(b'"kind": "epoch"') if self.metrics.exists() else 0

    def past_epochs(self) -> bool:
        """Whether the metrics record more epochs than a run can have before its first checkpoint."""
        return self.count_epochs() > 1

    def _remove(self, before: set[str], made: list[Path]) -> None:
        """Remove the files of a run that never started, except those that existed `before`, and the `made` folders."""
        files = (self.config, self.metrics, self.initial, self.log, self.data, self.lock_file)
        with suppress(OSError):  # the error that ended the run is the one to report
            for file in files:
                if file.name not in before:
                    file.unlink(missing_ok=True)
            if self.helper.name not in before and not self.helper.is_symlink() and self.helper.is_dir():
                RunFolder(self.helper)._remove(set(), [self.helper])
            for folder in made:
                folder.rmdir()

    def read_config(self) -> AnyConfig:
        """Return the run's configuration."""
        saved = read_json(self.config)
        try:
            return from_json(saved)
        except UserError as error:
            raise UserError(f"cannot read {self.config}: {error}") from None
        except RecursionError:
            raise UserError(f"cannot read {self.config}: it is nested too deeply.") from None

    def read_id(self) -> str | None:
        """Return the id that the run was created with; `None` if an earlier version created it."""
        saved = read_json(self.config)
        found = saved.get(RUN_ID) if isinstance(saved, dict) else None
        return None if found is None else str(found)

    def read_imports(self) -> tuple[Import, ...]:
        """Return the custom modules that the run was created with."""
        return parse_imports(read_json(self.config), self.config)

    def change_config(self, config: AnyConfig, imports: tuple[Import, ...]) -> None:
        """Replace the configuration for the rest of the run."""
        with self.lock():
            write_json(self.config, _content(config, imports, self.read_id()))

    def weights(self, which: Weights = "best") -> Path:
        """Return the path of the run's weights, whether they exist or not."""
        if which not in get_args(Weights):
            raise unknown("weights", str(which), get_args(Weights))
        best = which.startswith("best")
        if which.endswith("-raw") or not self.read_config().train.averaging.enabled:
            return self.best if best else self.last
        return self.best_averaged if best else self.last_averaged

    def find_weights(self, which: Weights = "best") -> Path:
        """Return the path of the run's weights; if they are missing, the error says what can be used instead."""
        file = self.weights(which)
        if file.is_file():
            return file
        if which == "best" and self.is_published and self.weights("last").is_file():
            return self.weights("last")
        choices: tuple[Weights, ...] = ("last", "best", "last-raw", "best-raw")
        others = [other for other in choices if self.weights(other).is_file()]
        if others:
            advice = f"use {self.weights(others[0])} instead (--weights {others[0]})"
        elif self.is_published:
            advice = "it was published without weights; train it with `uiat reproduce` and another --out"
        elif self.is_finished:
            advice = "the run is finished and will not write it again; train again in another folder"
        elif self.past_epochs() and not self.has_checkpoint():
            advice = "its checkpoints are missing too; train again in another folder"
        else:
            advice = f"the run writes it after its first epoch; resume with `uiat train --resume {quoted(self.path)}`"
        raise UserError(f"{self.path} has no {file.name}: {advice}.")

    @property
    def is_published(self) -> bool:
        """Whether this is the temporary copy of a published run: what is written here is lost."""
        return (self.path / PUBLISHED_MARK).is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the result card is written: the last file of a training, after which the run needs no lock."""
        return "config" in self.read_card()

    def read_card(self) -> dict[str, Any]:
        """Return the content of result.json, always with a list of evaluations."""
        card: dict[str, Any] = read_record(self.result, CARD_FIELDS) if self.result.exists() else {"schema": 1}
        check_types(self.result, card.get("data", {}), DATA_FIELDS)
        for entry in card.setdefault("evaluations", []):
            check_types(self.result, entry, EVALUATION_FIELDS)
        return card

    def read_data(self) -> dict[str, Any]:
        """Return the content of data.json, the fingerprint of the data; empty if an earlier version created the run."""
        known = read_record(self.data, IDENTITY_FIELDS) if self.data.exists() else {}
        for part in ("train", "validation", "test"):
            check_types(self.data, known.get(part, {}), {"images": int, "digest": str})
        return known

    @contextmanager
    def changed_card(self) -> Iterator[dict[str, Any]]:
        """Yield the result card, then write it with the changes made to it; concurrent commands wait for each other."""
        self.check_links()
        handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # a file system without locks
                locks.lock(handle, wait=True)
            card = self.read_card()
            yield card
            write_json(self.result, card)
        finally:
            os.close(handle)

    def read_metrics(self, kind: str | None = None, *, growing: bool = False) -> list[dict[str, Any]]:
        """Return the records of metrics.jsonl, or those of one kind; of a `growing` file, those that can be read."""
        records = read_metrics(self.metrics, growing=growing)
        return [record for record in records if kind in (None, record.get("kind"))]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this process; the system releases the lock when the process ends.

        The error of a full disk names the command that resumes the run.
        """
        handle = lock_run(self.path, self.lock_file)
        remove_abandoned(self.config)  # a kill within its creation: it is not written again
        try:
            self._handle = handle
            yield
        except OSError as error:
            raise disk_error(error, self.path, self.has_checkpoint()) from None
        finally:
            self._handle = None
            os.close(handle)

    def check_held(self) -> None:
        """Raise an error if the lock file was removed or replaced since this object locked it.

        Another process may have locked a new file and may be training the run.
        """
        if self._handle is not None and not locks.is_same_file(self._handle, self.lock_file):
            raise UserError(
                f"{self.lock_file} was removed or replaced while this process trained: another one may be training "
                f"{self.path}, so nothing more is written; the last checkpoint is kept. Once no other process does, "
                f"`uiat train --resume {quoted(self.path)}` resumes from it."
            )

    def is_locked(self) -> bool:
        """Whether a process, of this or another machine, holds the lock; the text in the file is not consulted."""
        return locks.is_locked(self.lock_file)


def _content(config: AnyConfig, imports: tuple[Import, ...], run_id: str | None) -> dict[str, Any]:
    """Return the content of config.json: the configuration, the run id and the imports."""
    beside = {RUN_ID: run_id, IMPORTS: [asdict(entry) for entry in imports]}
    return {**to_json(config), **{name: value for name, value in beside.items() if value}}


def read_record(path: Path, kinds: dict[str, Any]) -> dict[str, Any]:
    """Read a JSON file that holds a dictionary with values of these types."""
    saved = read_json(path)
    check_types(path, saved, kinds)
    return dict(saved)


def read_json(path: Path) -> Any:
    """Read a JSON file that may have been edited or damaged."""
    try:
        if not path.is_file():  # reading a FIFO would block
            raise UserError(f"cannot read {path}: it is not a regular file.")
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate could not be written again
        return value
    except UserError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}.") from None
