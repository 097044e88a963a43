"""The page of published results, made from the folder of everything at the tiny scale."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from tests.reproduce.tiny import TINY, tiny_scale

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "results_page.py"


def test_the_page_shows_what_is_in_the_folder(made: Path) -> None:
    spec = importlib.util.spec_from_file_location("results_page", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    with tiny_scale():
        script.OUT, script.SCALE, script.SEEDS = made, TINY, 1
        page = script.page()
        assert page == script.page()
    for title in ("# Results", "## What reproduced", "## The setting", "## Fitting and overfitting", "## table1: "):
        assert page.count(f"\n{title}" if title != "# Results" else title) >= 1, title
    rows = [line for line in (made / "table1.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert rows
    assert all(row in page for row in rows)
    pictures = re.findall(r"!\[[^]]*\]\(\.\./results/cpu/([^)]+)\)", page)
    assert pictures
    assert all((made / picture).is_file() for picture in pictures)
