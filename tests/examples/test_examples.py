"""The examples, run as scripts with their smallest settings."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LINE = re.compile(r"epoch (\d+).*natural ([\d.]+)%  PGD-\d+ ([\d.]+)%")
CHANCE = 10.0


def run(*words: str) -> list[tuple[int, float, float]]:
    """Run an example and return (epoch, natural, attacked) of each line it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=EXAMPLES,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    matches = [LINE.fullmatch(line) for line in done.stdout.splitlines()]
    assert all(matches), done.stdout
    return [(int(match[1]), float(match[2]), float(match[3])) for match in matches if match]


@pytest.mark.parametrize(
    ("words", "natural", "attacked"),
    [
        (("plug_in.py", "--epochs", "2"), 40, CHANCE),
        (("uiat_in_one_file.py", "--epochs", "2"), 40, CHANCE),
        (("uiat_in_one_file.py", "--epochs", "2", "--one-off"), 40, CHANCE),
    ],
    ids=["plug-in", "one file", "one file, one-off"],
)
def test_an_example_learns(words: tuple[str, ...], natural: float, attacked: float) -> None:
    """Natural accuracy is well above chance, that under attack above chance and below the natural one."""
    lines = run(*words)
    assert [epoch for epoch, _, _ in lines] == [1, 2]
    _, last_natural, last_attacked = lines[-1]
    assert natural < last_natural
    assert attacked < last_attacked < last_natural


def test_the_plug_in_example_stays_short() -> None:
    assert len((EXAMPLES / "plug_in.py").read_text(encoding="utf-8").splitlines()) < 80
