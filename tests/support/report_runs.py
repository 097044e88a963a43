"""Three small runs on digits, trained and evaluated by the commands, for all tests of a process."""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from uiat.cli import main

SMALL = [
    *("--data.subset", "500", "--data.test-subset", "120", "--model.width", "8", "--train.epochs", "4"),
    *("--train.batch-size", "32", "--train.schedule.lr", "0.1", "--validate.steps", "3", "--device", "cpu"),
]
METHODS = ("natural", "sat", "uiat")


@cache
def three_runs() -> Path:
    """Return a folder with the runs `natural`, `sat` and `uiat`; tests that change them take a copy."""
    folder = TemporaryDirectory(prefix="uiat-report-")
    atexit.register(folder.cleanup)
    for method in METHODS:
        run = str(Path(folder.name) / method)
        assert main(["train", f"digits-resnet8-{method}", *SMALL, "--out", run]) == 0
        assert main(["evaluate", run]) == 0
    return Path(folder.name)


def copy_of(method: str, to: Path) -> Path:
    """Return a copy of one of the runs."""
    shutil.copytree(three_runs() / method, to)
    return to


def paths() -> list[str]:
    """Return the three run folders."""
    return [str(three_runs() / method) for method in METHODS]
