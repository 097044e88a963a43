"""The scripts that write documentation: costs of the plan, and the page of published results."""

import importlib.util
import re
import runpy
from pathlib import Path
from typing import Any

from tests.support.tiny import TINY, tiny_scale
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.scales import SCALES

ROOT = Path(__file__).parents[2]


def test_the_documented_costs_are_the_plans() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "reproduce_costs.py"))
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    lines = [[part.strip() for part in line.split("|")[1:-1]] for line in page.splitlines() if line.count(" / ") == 4]
    found = {line[0].strip("`"): (line[1:3], line[4:6]) for line in lines}
    assert set(found) == {*EXPERIMENTS, "all"}
    for name, documented in found.items():
        for scale, parts in zip((SCALES["cpu"], SCALES["paper"]), documented, strict=True):
            cells = script["cells_of"](list(EXPERIMENTS) if name == "all" else [name], scale, scale.seeds)
            assert " | ".join(parts) == script["cost"](cells), f"{name}: run benchmarks/reproduce_costs.py"


def results_page() -> Any:
    spec = importlib.util.spec_from_file_location("results_page", ROOT / "benchmarks" / "results_page.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_page_and_readme_are_those_of_the_published_runs() -> None:
    script = results_page()
    assert (ROOT / "docs" / "results.md").read_text("utf-8") == script.page(), "run benchmarks/results_page.py"
    assert (ROOT / "README.md").read_text("utf-8") == script.readme(), "run benchmarks/results_page.py"
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", script.page())
    assert pictures
    assert all((ROOT / "docs" / picture).is_file() for picture in pictures)


def test_the_page_shows_what_is_in_the_folder(made: Path) -> None:
    script = results_page()
    with tiny_scale():
        script.OUT, script.SCALE, script.SEEDS = made, TINY, 1
        page = script.page()
        assert page == script.page()
    for title in ("# Results", "## What reproduced", "## The setting", "## Fitting and overfitting", "## table1: "):
        assert page.count(f"\n{title}" if title != "# Results" else title) >= 1, title
    rows = [line for line in (made / "table1.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert rows
    assert all(row in page for row in rows)
    assert "](pictures/results/fig2.svg)" in page
