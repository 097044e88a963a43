"""docs/results.md is what the published runs give, and README's table is part of it."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
ROUNDING = 0.011
"""Intervals come from quantiles of a bootstrap: another CPU may round the last of two digits otherwise."""


def test_the_page_is_what_the_runs_give() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "results_page.py"))["page"]()
    kept = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert NUMBER.sub("#", made) == NUMBER.sub("#", kept), "run benchmarks/results_page.py"
    ours, theirs = ([float(number) for number in NUMBER.findall(text)] for text in (made, kept))
    assert ours == pytest.approx(theirs, abs=ROUNDING)


def test_its_pictures_are_there() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page)
    assert pictures
    assert all((ROOT / "docs" / picture).is_file() for picture in pictures)
