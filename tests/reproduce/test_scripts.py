"""The scripts that write documentation: costs of the plan, and the page of published results."""

import json
import re
import runpy
from pathlib import Path

import torch

from benchmarks import results_page
from benchmarks.results_claims import tally
from benchmarks.results_pairs import Published, nearness
from tests.support.tiny import TINY, first_of, tiny_scale, trained
from uiat.evaluation.intervals import paired
from uiat.reproduce.cell import Cell
from uiat.reproduce.claims import Claim, Comparison, Finding
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.scales import SCALES

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results"


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


def test_the_page_and_readme_are_those_of_the_published_runs() -> None:
    page = results_page.page(results_page.RUNS)
    assert (ROOT / "docs" / "results.md").read_text("utf-8") == page, "run python -m benchmarks.results_page"
    readme = results_page.readme(results_page.RUNS)
    assert (ROOT / "README.md").read_text("utf-8") == readme, "run python -m benchmarks.results_page"
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page)
    assert pictures
    assert all((ROOT / "docs" / picture).is_file() for picture in pictures)


def test_all_published_runs_were_made_and_measured_as_the_page_says() -> None:
    """With one thread, the same kernels and the same torch: the page names those of one run."""
    runs = [json.loads(file.read_text("utf-8"))["files"] for file in PUBLISHED.glob("cpu/runs/*.json")]
    records = [run[name] for run in runs for name in run if name.endswith(".json") and name != "config.json"]
    environments = [record["environment"] for record in records]
    found = {(own["threads"], own["kernels"], own["versions"]["torch"]) for own in environments}
    assert len(found) == 1
    assert found.pop()[0] == 1


def test_the_page_shows_what_is_in_the_folder(made: Path) -> None:
    with tiny_scale():
        page = results_page.page(Published(made, TINY, 1))
    for title in ("# Results", "## What reproduced", "## The setting", "## Fitting and overfitting", "## table1: "):
        assert page.count(f"\n{title}" if title != "# Results" else title) >= 1, title
    rows = [line for line in (made / "table1.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert rows
    assert all(row in page for row in rows)
    assert "](pictures/results/fig2.svg)" in page


def test_rows_and_columns_without_runs_are_named_and_not_shown(tmp_path: Path) -> None:
    smoke = SCALES["smoke"]
    facts = ({"accuracy": 0.5}, {"correct": first_of(8, 0.5)})
    trained(Cell(smoke.config("sat")), tmp_path, 0).keep(smoke.attacked("PGD"), facts)
    lines = results_page.section(Published(tmp_path, smoke, 1), "table1")[0].splitlines()
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert [row[0] for row in rows] == ["method", "---", "SAT"]
    assert [row[1:] for row in rows] == [["PGD"], ["---:"], ["50.00 (51.40)"]]
    assert "are omitted: TRADES; MART; HAT; IAT; UIAT; UIAT (One-off)." in lines[-1]
    assert lines[-1].endswith("Columns without finished runs are omitted: Natural; CW; AA.")


def test_rows_of_different_seeds_say_how_many(tmp_path: Path) -> None:
    smoke = SCALES["smoke"]
    facts = ({"accuracy": 0.5}, {"correct": first_of(8, 0.5)})
    for method, seeds in (("sat", 3), ("trades", 3), ("uiat", 2)):
        if method == "uiat":
            assert "Seeds of each row" not in results_page.section(Published(tmp_path, smoke, 3), "table1")[0]
        for seed in range(seeds):
            trained(Cell(smoke.config(method)), tmp_path, seed).keep(smoke.attacked("PGD"), facts)
    text = results_page.section(Published(tmp_path, smoke, 3), "table1")[0]
    assert "Seeds of each row: SAT (3); TRADES (3); UIAT (2)." in text


def test_the_page_counts_claims_and_comparisons() -> None:
    """Here a claim of two parts that holds in one, one without runs, and one that the scale has no data for."""

    def part(difference: float | None, known: bool = True) -> Finding:
        values = None if difference is None else paired(torch.full((3, 400), difference))
        return Finding(Comparison("", (lambda out, seeds: values) if known else None), values)

    claim = Claim("", "", "", (), "")
    findings = [(claim, [part(0.5), part(-0.5)]), (claim, [part(None)]), (claim, [part(None, known=False)])]
    words = tally(findings)
    assert "3 claims: not reproduced at this scale: 1; without finished runs: 1; not testable at this scale: 1" in words
    assert (
        "3 comparisons one by one: reproduced: 1; not reproduced at this scale: 1; without finished runs: 1." in words
    )


def test_how_near_the_cheaper_attack_is_comes_from_runs_with_both(tmp_path: Path) -> None:
    cpu = SCALES["cpu"]
    runs = Published(tmp_path, cpu, 3)
    for method, seed, column, accuracy in (
        ("sat", 0, "Robust", 0.75),
        ("sat", 0, "AA", 0.625),
        ("uiat", 2, "Robust", 0.5),
        ("uiat", 2, "AA", 0.5),
        ("trades", 1, "Robust", 1.0),
    ):
        facts = ({"accuracy": accuracy}, {"correct": first_of(8, accuracy)})
        trained(Cell(cpu.config(method)), tmp_path, seed).keep(cpu.attacked(column), facts)
        lines = nearness(runs)
    assert "lower by 6.25 points on average, and by 12.5 at most" in lines[0]
    assert lines[0].endswith("have both: SAT (1), UIAT (1).")
    assert nearness(Published(tmp_path, SCALES["smoke"], 1)) == []
