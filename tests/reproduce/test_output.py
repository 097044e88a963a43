"""Written tables: the same numbers in all four files, the paper's beside ours, the best in bold."""

import csv
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest
from matplotlib.image import imread

from tests.support.tiny import TINY, tiny_scale
from uiat.reproduce.cell import Cell, Store, writing
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.experiments.figures import figs1
from uiat.reproduce.experiments.sweeps import fig3
from uiat.reproduce.experiments.tables import table6
from uiat.reproduce.figure import Figure, PlottedPoint
from uiat.reproduce.output import latex, table_caption, table_latex, table_markdown, table_records, write_table
from uiat.reproduce.scale import Scale
from uiat.reproduce.scales import SCALES
from uiat.reproduce.table import Entry, Table, fill, read_figures

ENDINGS = ("svg", "png", "md", "csv", "tex", "json")
"""Of the files of a figure."""


@dataclass(frozen=True)
class Given:
    """A reading whose values are given, seed by seed."""

    given: tuple[float, ...]
    measure: None = None
    digits: int = 1

    def values(self, cell: Cell | None, out: Path, seeds: int) -> list[float]:
        return list(self.given)


def table(*rows: tuple[str, tuple[float, ...], str]) -> Table:
    cell = Cell(TINY.config("sat"))
    entries = [Entry(row, "digits & more", "AA", cell, Given(values), paper) for row, values, paper in rows]
    return Table("table9", "A title with 50 %", TINY, tuple(entries))


def test_mean_deviation_paper_and_bold(tmp_path: Path) -> None:
    filled = fill(table(("a", (10.0, 20.0), "83.80"), ("b", (15.04, 14.98), ""), ("c", (), "1.0")), tmp_path, 2)
    text = table_markdown(filled)
    assert "| a | **15.0** ± 7.1 (83.80) |" in text
    assert "| b | **15.0** ± 0.0 |" in text, "equal as shown is equal"
    assert "| c | – (1.0) |" in text
    assert "mean ± standard deviation over 2 seeds" in text
    records = table_records(filled)
    assert [record["best"] for record in records] == [True, True, False]
    assert [record["seeds"] for record in records] == [2, 2, 0]


def test_the_caption_counts_the_seeds_that_are_finished(tmp_path: Path) -> None:
    some = table_caption(fill(table(("a", (10.0, 20.0, 30.0), ""), ("b", (15.0,), "")), tmp_path, 3))
    assert "mean ± standard deviation over 1 to 3 seeds, " in some
    assert "; one seed." in table_caption(fill(table(("a", (10.0,), "")), tmp_path, 3))
    nothing = table_caption(fill(table(("a", (), "1.0")), tmp_path, 3))
    assert "seed" not in nothing
    assert f"AA: {TINY.aa} on" in nothing


def test_the_caption_speaks_of_the_papers_figures_where_there_are_any(tmp_path: Path) -> None:
    assert "; one seed; in parentheses the paper's" in table_caption(fill(table(("a", (10.0,), "1.0")), tmp_path, 1))
    assert "paper" not in table_caption(fill(table(("a", (10.0,), "")), tmp_path, 1))


def test_a_table_without_attacks_does_not_speak_of_them(tmp_path: Path) -> None:
    assert TINY.robust not in table_caption(fill(EXPERIMENTS["table2"](TINY), tmp_path, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "scale", "weights"),
    [
        ("table1", "smoke", "best"),
        ("table1", "cpu", "best"),
        ("table1-last", "smoke", "last"),
        ("table5", "smoke", "last"),
        ("table6", "smoke", "best"),
        ("table6", "cpu", "last"),
        ("table2", "cpu", None),
    ],
)
def test_a_table_says_which_weights_it_is_of(name: str, scale: str, weights: str | None, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name](SCALES[scale])
    assert isinstance(experiment, Table)
    caption = table_caption(fill(experiment, tmp_path, 1))
    assert [kind for kind in ("best", "last") if f"Weights of the {kind} epoch." in caption] == (
        [weights] if weights else []
    )


@pytest.mark.parametrize(("scale", "weights"), [("smoke", "best"), ("cpu", "last")])
def test_a_figure_says_which_weights_it_is_of(scale: str, weights: str) -> None:
    point = PlottedPoint("panel", "line", 0.0, 1.0, 0.0, 2.0, None, 1, 10)
    for name in ("fig1", "fig3", "fig4", "fig5", "figS2", "fronts"):
        figure = EXPERIMENTS[name](SCALES[scale])
        assert isinstance(figure, Figure)
        assert f"Weights of the {weights} epoch." in figure.caption([point]), name
        assert {measure.weights for cell in figure.needs for measure in cell.measures} == {weights}


def test_a_figure_is_drawn_from_the_seed_that_is_finished(made: Path, tmp_path: Path) -> None:
    with tiny_scale():
        cell, figure = Cell(TINY.config("uiat"), (TINY.inverse(),)), figs1(TINY)
        shutil.copytree(Store(cell, made).path, Store(cell.at_seed(1), tmp_path).path)
        assert len(figure.write(tmp_path, 2)) == len(ENDINGS)
    assert "95 % intervals over images (one seed)" in (tmp_path / "figS1.md").read_text(encoding="utf-8")


def test_a_difference_says_whose_side_is_which(made: Path) -> None:
    text = (made / "fig5.md").read_text(encoding="utf-8")
    assert "bands: paired 95 % intervals over seeds and images" in text
    assert "Above 0 one-off UIAT is ahead" in text
    assert "UIAT (one-off) − TRADES (points)" in (made / "fig5.svg").read_text(encoding="utf-8")


def test_a_row_alone_is_not_the_best(tmp_path: Path) -> None:
    assert "**" not in table_markdown(fill(table(("a", (1.0,), "")), tmp_path, 1)).split("| --- |")[1]


def test_latex_is_escaped_and_its_rows_are_whole(tmp_path: Path) -> None:
    text = table_latex(fill(table(("a_b", (10.0, 12.0), "83.80"), ("c", (9.0, 9.0), "")), tmp_path, 2))
    assert r"a\_b & \textbf{11.0} $\pm$ 1.4 (83.80) \\" in text
    assert r"\multicolumn{1}{c}{digits \& more}" in text
    assert r"A title with 50 \%" in text
    assert text.count("{") == text.count("}")
    for rule in ("toprule", "midrule", "bottomrule"):
        assert f"\\{rule}" in text


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_every_letter_of_a_table_is_known_to_latex(scale: Scale, tmp_path: Path) -> None:
    for build in EXPERIMENTS.values():
        experiment = build(scale)
        texts = [table_latex(fill(experiment, tmp_path, 1))] if isinstance(experiment, Table) else []
        for text in (*texts, latex(experiment.title), *(latex(note) for note in getattr(experiment, "notes", ()))):
            assert text.isascii(), text


def test_everything_is_ascii_in_latex(made: Path) -> None:
    found = sorted(made.glob("*.tex"))
    assert {path.stem for path in found} == set(EXPERIMENTS)
    for path in found:
        assert path.read_text(encoding="utf-8").isascii(), path.name


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed (texlive-latex-recommended)")
def test_latex_compiles(made: Path, tmp_path: Path) -> None:
    for path in made.glob("*.tex"):
        args = (
            r"\documentclass{article}\usepackage{booktabs,graphicx,longtable}\begin{document}\input{%s}\end{document}"
        )
        call = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", f"-output-directory={tmp_path}"]
        done = subprocess.run([*call, args % path.name], cwd=made, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]


TABLES = [name for name in EXPERIMENTS if name.startswith("table")]
FIGURES = [name for name in EXPERIMENTS if name.startswith("fig")]


@pytest.mark.parametrize("name", TABLES)
def test_all_four_files_say_the_same(name: str, made: Path) -> None:
    content = json.loads((made / f"{name}.json").read_text(encoding="utf-8"))
    with (made / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    markdown = (made / f"{name}.md").read_text(encoding="utf-8")
    tex = (made / f"{name}.tex").read_text(encoding="utf-8")
    kept = {value for (table, _, _), value in read_figures().items() if table == name}
    assert len(lines) == len(content["entries"])
    for line, entry in zip(lines, content["entries"], strict=True):
        assert (line["row"], line["column"]) == (entry["row"], entry["column"])
        assert line["mean"] == ("" if entry["mean"] is None else str(entry["mean"]))
        if entry["paper"]:
            assert entry["paper"] in kept
            assert f"({entry['paper']})" in markdown
            assert f"({entry['paper']})" in tex
        assert all((made / "runs" / run).is_dir() for run in entry["runs"])
    assert "**smoke: digits**" in markdown
    rows = [row for row in markdown.splitlines() if row.startswith("| ")]
    assert len({row.count(" | ") for row in rows}) == 1
    columns = len(re.findall("r", re.search(r"\\begin\{tabular\}\{l(r+)\}", tex)[1]))  # type: ignore[index]
    body = [row for row in tex.split("midrule", 1)[1].splitlines() if row.endswith(r"\\")]
    assert {row.count(" & ") for row in body} == {columns}


def test_table_1_has_one_column_of_data_at_this_scale(made: Path) -> None:
    content = json.loads((made / "table1.json").read_text(encoding="utf-8"))
    assert {entry["group"] for entry in content["entries"]} == {"smoke: digits"}
    assert all(entry["mean"] is not None for entry in content["entries"])


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_opens_and_has_its_points(name: str, made: Path) -> None:
    picture = imread(made / f"{name}.png")
    assert min(picture.shape[:2]) > 400
    assert float((picture[:, :, :3].min(axis=2) < 0.9).mean()) > 0.02, "the picture is blank"
    assert ET.parse(made / f"{name}.svg").getroot().tag.endswith("svg")
    points = json.loads((made / f"{name}.json").read_text(encoding="utf-8"))["points"]
    assert points
    for point in points:
        assert point["low"] <= point["value"] + 1e-9
        assert point["value"] <= point["high"] + 1e-9
    with (made / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(points)
    assert f"]({name}.png)" in (made / f"{name}.md").read_text(encoding="utf-8")


def test_a_figure_has_the_same_bytes_again(made: Path, tmp_path: Path) -> None:
    with tiny_scale(), writing(made):
        figure = fig3(TINY)
        before = {ending: (made / f"fig3.{ending}").read_bytes() for ending in ENDINGS}
        figure.write(made, 1)
    assert {ending: (made / f"fig3.{ending}").read_bytes() for ending in ENDINGS} == before


@pytest.mark.parametrize("name", FIGURES)
def test_without_runs_a_figure_is_not_drawn(name: str, tmp_path: Path) -> None:
    figure = EXPERIMENTS[name](TINY)
    assert isinstance(figure, Figure)
    assert figure.write(tmp_path, 1) == []


def test_without_runs_a_table_has_the_papers_figures(tmp_path: Path) -> None:
    write_table(table6(TINY), tmp_path, 1)
    assert "| – (83.97) | – (53.98) | – (48.33) |" in (tmp_path / "table6.md").read_text(encoding="utf-8")


def test_an_entry_without_a_run_has_none() -> None:
    entry = Entry("a", "", "b", None, Given(()))
    assert isinstance(entry, Entry)
    assert entry.runs(3) == []
