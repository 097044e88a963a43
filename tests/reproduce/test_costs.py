"""The costs in docs/reproduce.md are those of the plan."""

import runpy
from pathlib import Path

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
