"""Untrusted names (classes, runs, settings) on the terminal, in CSV, in Markdown and in model cards."""

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.calls import call, stopped
from uiat.cli import main
from uiat.escaping import code_span, csv_cell, markdown, printable
from uiat.io import write_json
from uiat.runs.run_folder import RunFolder, read_json

NAMES = (
    "\x1b[31mred\x1b]0;title\x07",  # colours and the title of the window
    "=HYPERLINK(1)",
    "a|b`c``d",
    "<script>alert(1)</script>",
    "[x](http://example.org) www.example.org",
    "back\rover\x9b2J\u202e",  # overwrites the line, clears the screen, reverses the text
    "line\n# heading",
    "-2+3",
)
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SMALL = ("--train.epochs", "1", "--model.width", "2", "--validate.steps", "1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data of hostile class names, and a run on it."""
    folder = tmp_path_factory.mktemp("hostile")
    rng, y = np.random.default_rng(0), np.tile(np.arange(len(NAMES)), 8)
    arrays: dict[str, Any] = {"label": y, "classes": np.array(NAMES)}
    np.savez(folder / "x.npz", image=rng.integers(0, 256, (len(y), 8, 8, 1), np.uint8), **arrays)
    args = ["--data", str(folder / "x.npz"), "--model", "resnet8", *SMALL, "--out", str(folder / "run")]
    assert main(["train", *args]) == 0
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    shutil.copytree(trained, ".", dirs_exist_ok=True)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Return what a command prints on stdout, without any control character."""
    found = call(capsys, *args)
    assert found.code == 0, found.err
    assert not RAW.search(found.out + found.err)
    return found.out


def test_the_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (
        ("data", "info", "x.npz"),
        ("evaluate", "run", "--attacks", "natural", "--per-class"),
        ("inverse", "run", "--passes", "1"),
    ):
        out = shown(capsys, *args)
        assert r"\x1b[31mred\x1b]0;title\x07" in out
        assert r"back\rover\x9b2J\u202e" in out
        (width,) = {len(line) for line in out.splitlines() if "title" in line or "over" in line}
        assert width < 250  # escaped before the table was laid out
    bad = "no\x1b[2Jsuch"
    for wrong in (("evaluate", bad), ("data", "info", f"{bad}.npz"), ("compare", bad), ("export", bad), (bad,)):
        assert r"no\x1b[2Jsuch" in stopped(capsys, *wrong)
    Path("run").rename("\x1b[5mrun")
    assert r"\x1b[5mrun" in shown(capsys, "watch", "\x1b[5mrun", "--once")
    assert r"\x1b[5mrun" in shown(capsys, "export", "\x1b[5mrun")


def runs(*names: str) -> list[str]:
    """Copy the run under other names, with hostile settings and results."""
    for k, name in enumerate(names):
        shutil.copytree("run", name)
        config = read_json(Path(name, "config.json"))
        config["data"]["name"] = NAMES[k]
        write_json(Path(name, "config.json"), config)
    return list(names)


FOLDERS = tuple(name.replace("/", "∕") for name in NAMES)


def test_compare(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("all").mkdir()
    paths = [str(Path("all") / name) for name in FOLDERS]
    assert "\\x1b" in shown(capsys, "compare", *runs(*paths))

    rows = list(csv.reader(io.StringIO(shown(capsys, "compare", *paths, "--csv"))))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == 1 + len(paths)
    cells = [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert all(re.fullmatch(r"-?[\d.e-]+", cell) for cell in cells)  # numbers stay numbers
    assert {row[0] for row in rows} >= {"'=HYPERLINK(1)", "'-2+3"}

    lines = shown(capsys, "compare", *paths, "--markdown").splitlines()
    table = lines[: 2 + len(paths)]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {9}
    text = "\n".join(lines)
    assert not re.search(r"(?<!\\)`|<script|(?<!\\)\]\(|://|www\.|^# ", text, re.MULTILINE)


def test_model_card(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder("run")
    assert call(capsys, "evaluate", "run", "--attacks", "natural").code == 0
    card = read_json(run.result)
    (entry,) = card["evaluations"]
    hostile = [{**entry, "data": name, "sample": name, "attack": name} for name in NAMES]
    write_json(run.result, {**card, "evaluations": hostile, "data": {**card["data"], "name": NAMES[3]}})
    shown(capsys, "export", "run", "--hub-card")
    readme = Path("run/export/README.md").read_text(encoding="utf-8")
    assert not RAW.search(readme)
    for name in NAMES:
        assert code_span(name) in readme  # as a class
    body = readme.split("\n---\n", 1)[1]
    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", body)  # without code
    assert "<script" not in outside
    assert "](http://example" not in outside
    assert not re.search(r"^# heading", body, re.MULTILINE)
    (table,) = re.findall(r"\| attack \|.*?\n\n", body, re.DOTALL)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table.strip().splitlines()} == {6}
    assert json.loads(Path("run/export/card.json").read_text())["data"]["classes"] == list(NAMES)


@pytest.mark.parametrize(
    ("escape", "text", "expected"),
    [
        (printable, "ε = 8/255\tb\nc", "ε = 8/255\tb\nc"),
        (printable, "\x1b\x00\x7f\udcff", r"\x1b\x00\x7f\udcff"),
        (csv_cell, "-8/255", "-8/255"),
        (csv_cell, "+1.5e-3", "+1.5e-3"),
        (csv_cell, "-inf", "-inf"),
        (csv_cell, -0.5, -0.5),
        (csv_cell, "@SUM(A1)", "'@SUM(A1)"),
        (csv_cell, "\tx", "'\tx"),
        (csv_cell, "\rx", "'\\rx"),
        (csv_cell, "-1+cmd", "'-1+cmd"),
        (markdown, "T-shirt/top my_data", "T-shirt/top my_data"),
        (markdown, "a|b\n<i>&", r"a\|b\\n&lt;i&gt;&amp;"),
        (code_span, "plain", "`plain`"),
        (code_span, "`", "`` ` ``"),
    ],
)
def test_escapes(escape: Any, text: object, expected: object) -> None:
    assert escape(text) == expected


def test_one_console_prints_everything() -> None:
    """Only the console that escapes: no other module creates a rich console."""
    source = Path(main.__code__.co_filename).parents[1]
    others = [path.name for path in source.rglob("*.py") if re.search(r"import .*\bConsole\b", path.read_text())]
    assert others == ["progress.py"]
