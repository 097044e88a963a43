"""A run is a folder: what is in it, and that only one process writes it."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uiat.config import AnyConfig
from uiat.engine.files import write_json
from uiat.errors import UserError
from uiat.serialize import from_json, to_json


class RunFolder:
    """The files of one run (see docs/method.md for what each holds)."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.metrics = self.path / "metrics.jsonl"
        self.checkpoint = self.path / "checkpoint.pt"
        self.best = self.path / "best.safetensors"
        self.last = self.path / "last.safetensors"
        self.result = self.path / "result.json"
        self.log = self.path / "log.txt"
        self.helper = self.path / "helper"

    @staticmethod
    def create(path: str | Path, config: AnyConfig) -> "RunFolder":
        """Begin a run in a new or empty folder."""
        run = RunFolder(path)
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            write_json(run.config, to_json(config), exclusive=True)
        except FileExistsError:
            raise UserError(
                f"{run.path} already holds a run: go on with `uiat train --resume {run.path}`, or choose another --out."
                if run.config.exists()
                else f"cannot make the run folder {run.path}: there is a file of that name; choose another --out."
            ) from None
        except OSError as error:
            raise UserError(
                f"cannot write the run folder {run.path}: {error.strerror}; choose another --out."
            ) from None
        return run

    @staticmethod
    def open(path: str | Path) -> "RunFolder":
        """Find a run that is there."""
        run = RunFolder(path)
        if not run.config.is_file():
            raise UserError(
                f"{run.path} is not a run folder (it has no config.json): give the folder of a `uiat train`."
            )
        return run

    def read_config(self) -> AnyConfig:
        """Return the configuration the run was begun with."""
        return from_json(read_json(self.config))

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, epoch and step lines alike."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; the system lets go of it when the process ends, however it ends."""
        with open(self.path / "lock", "a+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                handle.seek(0)
                holder = handle.read().strip() or "another process"
                raise UserError(
                    f"the run folder {self.path} is in use by {holder}: wait for it, or choose another --out."
                ) from None
            handle.truncate(0)
            handle.write(f"process {os.getpid()}")
            handle.flush()
            yield


def read_json(path: Path) -> Any:
    """Read a JSON file that a person may have broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}.") from None
