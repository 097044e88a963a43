"""Three small runs on digits, trained and evaluated by the commands, and their page, made once per process."""

import atexit
import base64
import json
import re
import shutil
import zlib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from uiat.cli import main
from uiat.data.images import to_unit
from uiat.evaluation.subject import LoadedSubject, Subject, load_subject
from uiat.runs.run_folder import RunFolder

SMALL = [
    *("--data.subset", "300", "--data.test-subset", "120", "--model.width", "8", "--train.epochs", "4"),
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


EXAMPLES = 12
FLAGS = ["--n", "60", "--examples", str(EXAMPLES), "--attack", "pgd-5", "--device", "cpu"]
EVIL = "<img src=x onerror=alert(1)>"


@cache
def report() -> Path:
    """Return the page of the three runs; one of them has a hostile name."""
    evil = three_runs().parent / f"{three_runs().name}-copies" / EVIL
    if not evil.exists():
        copy_of("sat", evil)
    out = three_runs() / "report.html"
    assert main(["report", paths()[0], str(evil), paths()[2], *FLAGS, "-o", str(out)]) == 0
    return out


def payload(page: Path) -> dict[str, Any]:
    """Return what the page's script reads."""
    match = re.search(r'<script type="application/json" id="payload">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert match is not None
    found: dict[str, Any] = json.loads(match[1])
    return found


def unpacked(text: str, shape: list[int]) -> Tensor:
    """Return the bytes of the payload as images."""
    content = bytearray(zlib.decompress(base64.b64decode(text)))
    return torch.frombuffer(content, dtype=torch.uint8).reshape(-1, *shape)


def frames(data: dict[str, Any], run: int, example: int) -> Tensor:
    """Return all frames of an example, put together as the page's script does it, in plain Python."""
    natural = unpacked(data["examples"][example]["pixels"], data["shape"])[0]
    changes = unpacked(data["runs"][run]["frames"][example], data["shape"])
    zero, found = data["zero"], {data["zero"]: natural}
    for k in range(zero):
        found[zero - 1 - k] = found[zero - k] + changes[k]  # uint8 wraps around
    for k in range(zero, len(changes)):
        found[k + 1] = found[k] + changes[k]
    return torch.stack([found[k] for k in range(len(found))])


@cache
def opened(run: Path) -> LoadedSubject:
    """Return a run's network and test images."""
    config = RunFolder.open(run).read_config()
    return load_subject(run, Subject(config.data, config.model, device="cpu"))


def folder(name: str) -> Path:
    """Return the folder of a run on the page."""
    return (
        three_runs() / name
        if name in ("natural", "uiat")
        else three_runs().parent / f"{three_runs().name}-copies" / EVIL
    )


def probabilities(run: Path, pixels: Tensor) -> Tensor:
    """Return the probabilities of a run's network for uint8 images."""
    with torch.no_grad():
        found: Tensor = opened(run).model(to_unit(pixels)).double().softmax(dim=1)
    return found
