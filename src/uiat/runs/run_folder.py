"""A run is a folder: what is in it, and that only one process writes it."""

import errno
import fcntl
import json
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import uuid4

from uiat.balls import Norm
from uiat.config import IMPORTS, RUN_ID, AnyConfig, from_json, to_json
from uiat.data.files import nearest
from uiat.errors import PeerLost, Resumable, UserError, quoted, unknown
from uiat.io import WriteError, no_link, reason, write_json
from uiat.plugins import Import
from uiat.typed import check_record, fits, show_value

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""How the system says that a disk takes no more: full, a quota, a limit, broken."""

Weights = Literal["best", "last", "best-raw", "last-raw"]
"""Which weights of a run: of the best epoch or the last, averaged where the run averages; `-raw` never averaged."""


_DICT = dict[str, Any]
DATA: dict[str, Any] = {
    **{"name": str, "classes": list[str], "shape": list[int]},
    **dict.fromkeys(("train", "validation", "test", "generated"), int),
}
CARD: dict[str, Any] = {
    **dict.fromkeys(("config", "data", "environment"), _DICT),
    **{"best": dict[str, float], "training_seconds": float, "training_passes": dict[str, float]},
    **{"processes": int, "evaluations": list[_DICT]},
}
EVALUATION: dict[str, Any] = {
    **dict.fromkeys(("weights", "data", "sample", "attack", "split", "verdicts", "version"), str),
    **dict.fromkeys(("eps", "step", "accuracy", "seconds"), float),
    **dict.fromkeys(("n", "steps", "restarts", "seed", "processes"), int),
    **{"exact": bool, "norm": Norm, "interval95": tuple[float, float], "per_class": dict[str, float]},
    **{"environment": _DICT},
}
IDENTITY: dict[str, Any] = {
    **{"classes": list[str], "shape": list[int], "places": dict[str, str]},
    **dict.fromkeys(("train", "validation", "test"), _DICT),
}
"""The types of what is read from the files of a run."""
LINES = {"epoch": {"epoch", "val_natural", "val_robust"}, "step": {"epoch", "step", "lr"}}
"""What the lines of metrics.jsonl have at least, by their kind."""


class RunFolder:
    """The files of one run (see docs/method.md for what each holds)."""

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
        self.helper = self.path / "helper"
        self.lock_file = self.path / "lock"
        self._handle: int | None = None
        """The lock file, while this object holds the run."""

    @staticmethod
    def create(path: str | Path, config: AnyConfig, imports: tuple[Import, ...] = ()) -> "RunFolder":
        """Begin a run in a new or empty folder; `imports` are the modules of one's own that it needs."""
        run = RunFolder(path)
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            write_json(run.config, _content(config, imports, uuid4().hex), exclusive=True)
        except FileExistsError:
            raise run._taken() from None
        except OSError as error:
            raise UserError(f"cannot write the run folder {run.path}: {reason(error)}; choose another --out.") from None
        return run

    def check_free(self) -> None:
        """Refuse a folder in which no run can be created, before anything costly is done for it."""
        if self.config.exists() or self.path.is_file():
            raise self._taken()

    def _taken(self) -> UserError:
        if self.config.exists():
            resume = f"`uiat train --resume {quoted(self.path)}`"
            return UserError(f"{self.path} already holds a run: resume it with {resume}, or choose another --out.")
        return UserError(f"cannot make the run folder {self.path}: there is a file of that name; choose another --out.")

    @staticmethod
    @contextmanager
    def begin(path: str | Path, config: AnyConfig, imports: tuple[Import, ...] = ()) -> Iterator["RunFolder"]:
        """Create a run; an error within, before anything was trained, removes what the run has put there.

        What was there before stays, and so does a run that can go on as it is (`Resumable`, `PeerLost`).
        """
        run = RunFolder(path)
        made = [folder for folder in (run.path, *run.path.parents) if not os.path.lexists(folder)]
        before = set() if run.path in made else set(os.listdir(run.path)) if run.path.is_dir() else None
        RunFolder.create(path, config, imports)
        try:
            yield run
        except (Resumable, PeerLost):
            raise
        except Exception:
            if not (run.has_trained() or RunFolder(run.helper).has_trained()):
                run._remove(before or set(), made)
            raise

    @staticmethod
    def open(path: str | Path) -> "RunFolder":
        """Find a run that is there."""
        run = RunFolder(path)
        if not run.config.is_file():
            near = "" if run.path.exists() else nearest(run.path)
            advice = near or "give the folder of a `uiat train`."
            raise UserError(f"{run.path} is not a run folder (it has no config.json): {advice}")
        return run

    def is_writable(self) -> bool:
        """Whether files can be written here; not in a folder of somebody else, or on a read-only disk."""
        return os.access(self.path, os.W_OK)

    def check_links(self) -> None:
        """Refuse to write a run that holds links at any depth, through which a stranger's run could reach other files.

        `helper` may be a link to a run beside this one, as `uiat reproduce` makes it; it is only read.
        """
        for folder, folders, files in os.walk(self.path):
            for path in (Path(folder, name) for name in (*folders, *files)):
                if path.is_symlink() and not (path == self.helper and _is_beside(os.readlink(path))):
                    raise UserError(f"{path} is a link, and nothing is written through one: replace it by its content.")

    def has_trained(self) -> bool:
        """Whether there is anything of a past step: a checkpoint, or a line of metrics."""
        return self.has_checkpoint() or (self.metrics.exists() and self.metrics.stat().st_size > 0)

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint, be it whole or not."""
        return self.checkpoint.exists() or self.previous.exists()

    def past_epochs(self) -> bool:
        """Whether the metrics tell of more epochs than a run can have before its first checkpoint."""
        return self.metrics.exists() and self.metrics.read_bytes().count(b'"kind": "epoch"') > 1

    def _remove(self, before: set[str], made: list[Path]) -> None:
        """Remove the files of a run that never began, unless they were there `before`, and the `made` folders."""
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
        """Return the configuration the run was begun with."""
        saved = read_json(self.config)
        try:
            return from_json(saved)
        except UserError as error:
            raise UserError(f"cannot read {self.config}: {error}") from None
        except RecursionError:
            raise UserError(f"cannot read {self.config}: it is nested too deeply.") from None

    def read_id(self) -> str | None:
        """Return the id that the run was created with; `None` for a run of an earlier version."""
        saved = read_json(self.config)
        found = saved.get(RUN_ID) if isinstance(saved, dict) else None
        return None if found is None else str(found)

    def read_imports(self) -> tuple[Import, ...]:
        """Return the modules of one's own that the run was made with."""
        saved = read_json(self.config)
        entries = saved.get(IMPORTS, []) if isinstance(saved, dict) else []
        try:
            if not all(isinstance(text, str) for entry in entries for text in entry.values()):
                raise TypeError
            return tuple(Import(**entry) for entry in entries)
        except (TypeError, AttributeError):
            raise UserError(f"the imports in {self.config} are not a list of names and folders: mend them.") from None

    def change_config(self, config: AnyConfig, imports: tuple[Import, ...]) -> None:
        """Write another configuration for the rest of the run, so that the folder tells what was done."""
        with self.lock():
            write_json(self.config, _content(config, imports, self.read_id()))

    def weights(self, which: Weights = "best") -> Path:
        """Return the file of a run's weights."""
        if which not in get_args(Weights):
            raise unknown("weights", str(which), get_args(Weights))
        best = which.startswith("best")
        if which.endswith("-raw") or not self.read_config().train.averaging.enabled:
            return self.best if best else self.last
        return self.best_averaged if best else self.last_averaged

    def find_weights(self, which: Weights = "best") -> Path:
        """Return the file of a run's weights; where it is gone, say what can be used instead."""
        file = self.weights(which)
        if file.is_file():
            return file
        choices: tuple[Weights, ...] = ("last", "best", "last-raw", "best-raw")
        others = [other for other in choices if self.weights(other).is_file()]
        if others:
            advice = f"use {self.weights(others[0])} instead (--weights {others[0]})"
        elif self.is_finished:
            advice = "the run is finished and does not write it again; train anew, in another folder"
        elif self.past_epochs() and not self.has_checkpoint():
            advice = "its checkpoints are gone, too; train anew, in another folder"
        else:
            advice = f"the run writes it after its first epoch; go on with `uiat train --resume {quoted(self.path)}`"
        raise UserError(f"{self.path} has no {file.name}: {advice}.")

    @property
    def is_finished(self) -> bool:
        """Whether its card is written, which is the last thing a training does: nothing of it has to be locked then."""
        return "config" in self.read_card()

    def read_card(self) -> dict[str, Any]:
        """Return what result.json says; it has a list of evaluations, which may be empty."""
        card: dict[str, Any] = read_record(self.result, CARD) if self.result.exists() else {"schema": 1}
        check_types(self.result, card.get("data", {}), DATA)
        for entry in card.setdefault("evaluations", []):
            check_types(self.result, entry, EVALUATION)
        return card

    def read_data(self) -> dict[str, Any]:
        """Return what data.json says; nothing where an earlier version began the run."""
        known = read_record(self.data, IDENTITY) if self.data.exists() else {}
        for part in ("train", "validation", "test"):
            check_types(self.data, known.get(part, {}), {"images": int, "digest": str})
        return known

    @contextmanager
    def changed_card(self) -> Iterator[dict[str, Any]]:
        """Yield the card to be changed, then write it; commands that do so at once wait for each other."""
        self.check_links()
        handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            card = self.read_card()
            yield card
            write_json(self.result, card)
        finally:
            os.close(handle)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, epoch and step lines alike."""
        if not self.metrics.exists():
            return []
        try:
            lines = [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"cannot read {self.metrics}: {error}.") from None
        if not all(map(is_line, lines)):
            raise UserError(f"cannot read {self.metrics}: it has lines that are no records.")
        return lines

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; the system lets go of it when the process ends, however it ends.

        Within it, a disk that takes no more is one sentence that says how to go on.
        """
        handle = self._locked()
        try:
            self._handle = handle
            yield
        except OSError as error:
            if isinstance(error, WriteError) or error.errno in DISK:
                raise Resumable(self._full(error)) from None
            raise
        finally:
            self._handle = None
            os.close(handle)

    def check_held(self) -> None:
        """Refuse to write a run that this object has locked, if its lock file is no longer the one that was locked.

        Where somebody removed it, another process may have locked a new one, and may be training the run.
        """
        if self._handle is not None and not self._is_lock(self._handle):
            raise UserError(
                f"{self.lock_file} was removed or replaced while this process trained: another one may be training "
                f"{self.path}, so nothing more is written; the last checkpoint is kept. Once no other process does, "
                f"`uiat train --resume {quoted(self.path)}` resumes from it."
            )

    def _is_lock(self, handle: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(handle), os.stat(self.lock_file, follow_symlinks=False))
        return False

    def _locked(self) -> int:
        """Return the handle of the lock file, locked; one that was replaced before it was locked is no lock."""
        while True:
            try:
                self.check_links()
                handle = no_link(str(self.lock_file), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            except OSError as error:
                raise UserError(f"cannot write the run folder {self.path}: {reason(error)}.") from None
            try:
                self._hold(handle)
                if self._is_lock(handle):
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    def is_locked(self) -> bool:
        """Whether a process, of this or another machine, holds the run; words in the lock file prove nothing."""
        try:
            handle = os.open(self.lock_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
        finally:
            os.close(handle)
        return False

    def _hold(self, handle: int) -> None:
        try:
            _try_lock(handle)
        except BlockingIOError:
            holder = _living(os.pread(handle, 100, 0).decode("utf-8", "replace"))
            raise UserError(
                f"the run folder {self.path} is in use by {holder}: wait for it, or choose another --out."
            ) from None
        except OSError as error:
            raise UserError(
                f"the run folder {self.path} cannot be locked ({reason(error)}), so that two processes could write it: "
                "put it on a file system with locks."
            ) from None
        with suppress(OSError):  # the lock is held; its words are for people only
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {platform.node()}".encode(), 0)

    def _full(self, error: OSError) -> str:
        path = error.path if isinstance(error, WriteError) else error.filename or f"a file in {self.path}"
        kept = "the last good checkpoint is kept" if self.has_checkpoint() else "there is no checkpoint yet"
        return (
            f"cannot write {path}: {reason(error)}; {kept}, make room and "
            f"`uiat train --resume {quoted(self.path)}` goes on."
        )


def _content(config: AnyConfig, imports: tuple[Import, ...], run_id: str | None) -> dict[str, Any]:
    """Return what config.json holds: the configuration, and beside it the id and the imports that there are."""
    beside = {RUN_ID: run_id, IMPORTS: [asdict(entry) for entry in imports]}
    return {**to_json(config), **{name: value for name, value in beside.items() if value}}


def _is_beside(target: str) -> bool:
    """Whether a link within a run leads to a folder beside the run."""
    parts = Path(target).parts
    return len(parts) == 2 and parts[0] == ".." != parts[1]


def _try_lock(handle: int) -> None:
    """Lock a file or raise `BlockingIOError`; `is_locked` in another process holds it for a moment only."""
    for pause in (0.02, 0.05, 0.1):
        with suppress(BlockingIOError):
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(pause)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _living(words: str) -> str:
    """Return the words that a holder of the lock left, unless they are those of a process that is gone."""
    match = re.fullmatch(r"process (\d+)(?: on (.*))?", words.strip())
    if match is None:
        return "another process"
    if match[2] in (None, platform.node()):
        try:
            os.kill(int(match[1]), 0)
        except (ProcessLookupError, OverflowError):
            return "another process"
        except PermissionError:  # somebody else's, but alive
            pass
    return match[0]


def is_line(line: object) -> bool:
    """Whether a value is a line of metrics.jsonl: of some steps, or of an epoch."""
    if not isinstance(line, dict) or line.get("kind") not in tuple(LINES):
        return isinstance(line, dict)
    numbers = {name: value for name, value in line.items() if name != "kind"}
    whole = all(fits(numbers.get(name, 1), int) and numbers.get(name, 1) > 0 for name in ("epoch", "step"))
    return whole and LINES[line["kind"]] <= numbers.keys() and fits(numbers, dict[str, float | bool])


def read_record(path: Path, kinds: dict[str, Any]) -> dict[str, Any]:
    """Read a JSON file that holds a dictionary, with values of these types."""
    saved = read_json(path)
    check_types(path, saved, kinds)
    return dict(saved)


def check_types(path: Path, saved: Any, kinds: dict[str, Any]) -> None:
    """Refuse what was read from a file, unless it is a dictionary with values of these types."""
    if not isinstance(saved, dict):
        raise UserError(f"cannot read {path}: it holds {show_value(saved)} where a record is expected; move it away.")
    try:
        check_record(saved, kinds)
    except UserError as error:
        raise UserError(f"cannot read {path}: {str(error).rstrip('.')}; move it away.") from None


def read_json(path: Path) -> Any:
    """Read a JSON file that a person may have broken."""
    try:
        if not path.is_file():  # a pipe would never end
            raise UserError(f"cannot read {path}: it is not a file.")
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half a character cannot be written again
        return value
    except UserError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}.") from None
