"""Runs with arbitrary content in their files: each command ends in time, with a message, and does no harm.

The damage is drawn from a fixed seed: a case is repeated by its number.
"""

import json
import shutil
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest
import torch

import uiat
from tests.support.calls import call
from tests.support.runs import begin, splits, tiny
from uiat.cli import main
from uiat.errors import UserError
from uiat.io import write_sealed
from uiat.runs.identity import keep_identity
from uiat.runs.run_folder import RunFolder

DEEP: Any = None
for _ in range(300):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 10**30, -(10**30), 10**400, 0.5, -0.5, 1e308, -1e308),
    *(float("nan"), float("inf"), "", "x", "1", "x" * 10_000, "\x00\x1b[31m\n", "\ud800", "../../x", "a:b"),
    *([], {}, [1], ["x"], [None] * 100, {"kind": "PGD"}, {"kind": "UIAT"}, {"kind": "ResNet"}, {"kind": 3}, {"x": 1}),
    DEEP,
)
"""What takes the place of a value: other types, numbers out of range, text that is hard to print, nesting."""
FILES = ("config.json", "result.json", "data.json", "metrics.jsonl", "measures/a.json", "curves/curves.json")
CHECKPOINTS = ("checkpoint.pt", "checkpoint.previous.pt")


def damage(run: RunFolder, name: str, random: Random) -> str:
    """Damage one file of a run; return a description of the damage."""
    path = run.path / name
    if name in CHECKPOINTS:
        content = torch.load(path, weights_only=True)
        change = mutate(content, random)
        write_sealed(path, content)
        return f"{name}: {change}"
    if random.random() < 0.1:
        return f"{name}: {damage_bytes(path, random)}"
    if name.endswith(".jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change = mutate(lines, random)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return f"{name}: {change}"
    holder = [json.loads(path.read_text())]
    change = mutate(holder, random)
    path.write_text(json.dumps(holder[0] if holder else None))
    return f"{name}: {change}"


def mutate(tree: Any, random: Random) -> str:
    """Replace, remove, wrap or add one value at a random place of a tree of dictionaries and lists."""
    container, key = random.choice(list(places(tree)))
    place = f"{type(container).__name__}[{str(key)[:40]!r}]"
    match random.choice(("replace", "replace", "replace", "remove", "wrap", "text", "add")):
        case "remove":
            del container[key]
            return f"{place} removed"
        case "wrap":
            container[key] = random.choice(([container[key]], {"x": container[key]}))
            return f"{place} wrapped"
        case "text":
            container[key] = str(container[key])
            return f"{place} as text"
        case "add" if isinstance(container, dict):
            container["evil"] = random.choice(VALUES)
            return f"{place}: a key added"
        case _:
            value = random.choice(VALUES)
            container[key] = deepcopy(value)
            return f"{place} is now {str(value)[:60]!r}"


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key) of a tree."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from places(tree[key])


def damage_bytes(path: Path, random: Random) -> str:
    """Cut a file, or change one of its bytes."""
    content, at = bytearray(path.read_bytes()), random.randrange(path.stat().st_size)
    if random.random() < 0.5:
        path.write_bytes(content[:at])
        return f"cut at byte {at}"
    content[at] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return f"a bit of byte {at} flipped"


def everything(folder: Path, without: Path) -> dict[str, bytes]:
    """Return the content of all files of a folder, except those of one sub-folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(without))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def copy_of(run: RunFolder, path: Path) -> RunFolder:
    """Return a copy of a run, which replaces an earlier copy."""
    shutil.rmtree(path, ignore_errors=True)
    return RunFolder(shutil.copytree(run.path, path))


SECONDS = 60
"""Far more than any command takes on a busy machine: a case that takes longer is a hang."""
CASES, SAMPLE = 1200, 24
PAGE = "report.html"
ALWAYS = (("compare", "RUN"), ("watch", "RUN", "--once"))
SOMETIMES: tuple[tuple[str, ...], ...] = (
    ("evaluate", "RUN", "--n", "2", "--attacks", "natural", "fgsm"),
    ("train", "--resume", "RUN", "--device", "cpu"),
    ("report", "RUN", "--pictures", "0"),
    ("export", "RUN"),
    ("load", "RUN"),
    ("inverse", "RUN", "--n", "2", "--z-images", "4", "--passes", "1", "--rows", "1", "--weights", "last"),
    ("report", "RUN", "--n", "4", "--examples", "1", "--attack", "fgsm"),
    ("curves", "RUN", "--n", "2", "--attack", "fgsm", "--grid", "-0.1", "0", "0.1"),
)


class Hang(BaseException):
    """A command that did not end."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a finished run with an evaluation, a curve and a measurement."""
    config = tiny("uiat")
    config = replace(config, train=replace(config.train, epochs=2))
    run = begin(config, tmp_path_factory.mktemp("fuzz") / "run")
    keep_identity(run, splits(config.data), config)
    assert main(["evaluate", str(run.path), "--attacks", "natural", "pgd-1"]) == 0
    assert main(["curves", str(run.path), "--n", "4", "--attack", "pgd-1", "--grid", "0", "0.1"]) == 0
    (run.path / "measures").mkdir()
    entry = run.read_card()["evaluations"][1]
    (run.path / "measures" / "a.json").write_text(json.dumps({**entry, "split": "test", "weights": "best"}))
    return run


@contextmanager
def limited() -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def use(args: tuple[str, ...], run: RunFolder, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command; return what is wrong with how it ended, or nothing."""
    args = tuple(str(run.path) if word == "RUN" else word for word in args)
    try:
        with limited():
            if args[0] == "load":
                try:
                    uiat.load(run.path)
                except UserError as error:
                    return "" if str(error) else "no message"
                return ""
            found = call(capsys, *args)
    except Hang:
        return "hangs"
    except BaseException:
        return traceback.format_exc()
    if found.code not in (0, 1, 2) or (found.code and not found.err.strip()) or "Traceback" in found.err:
        return f"ended with {found.code}: {found.err[:300]}"
    return ""


def prepare_case(number: int, original: RunFolder, path: Path) -> tuple[RunFolder, str, list[tuple[str, ...]]]:
    """Return a damaged copy of a run, a description of the damage, and the commands to try."""
    random = Random(number)
    name = (*FILES, *FILES[:4], *CHECKPOINTS[:1])[number % 11]
    run = copy_of(original, path)
    if random.random() < 0.5:  # a finished run is not trained
        run.previous.unlink()
        if name != "result.json":
            run.result.unlink()
    done = damage(run, name, random)
    first = [SOMETIMES[1]] if name in CHECKPOINTS else [*ALWAYS, random.choice(SOMETIMES)]
    return run, done, [*first, random.choice(SOMETIMES)]


def check(numbers: range, original: RunFolder, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for number in numbers:
        run, done, commands = prepare_case(number, original, folder / "run")
        before = everything(folder, run.path)
        ends = ((args, use(args, run, capsys)) for args in commands)
        wrong += [f"case {number}, {done}: uiat {' '.join(args)}: {problem}" for args, problem in ends if problem]
        after = everything(folder, run.path)
        if after != {**before, PAGE: after[PAGE]}:
            wrong.append(f"case {number}, {done}: files outside of the run changed")
            break
    assert not wrong, f"{len(wrong)} problems in {len(numbers)} cases:\n" + "\n".join(wrong[:20])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, whose files no command may change, except the page of `uiat report`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / PAGE).touch()
    (tmp_path / "beside.txt").write_text("mine")
    return tmp_path


@pytest.mark.parametrize("start", range(0, SAMPLE, 12))
def test_a_sample(start: int, original: RunFolder, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(range(start, start + 12), original, folder, capsys)


@pytest.mark.faults
@pytest.mark.parametrize("start", range(SAMPLE, CASES, 60))
def test_many(start: int, original: RunFolder, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(range(start, start + 60), original, folder, capsys)
