"""The paper's numbers: stored once, as printed in the paper, and extracted by a script that detects changes."""

import hashlib
import re
import runpy
from collections import Counter
from typing import Any

import pytest

from tests.support.processes import ROOT
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.scales import SCALES
from uiat.reproduce.table import Entry, Table, paper_figure, read_figures

BY_HAND = [  # typed by hand from the paper, some of every table
    ("table1", "SAT", "CIFAR-10/Natural", "83.80"),
    ("table1", "UIAT", "CIFAR-100/AA", "25.73"),
    ("table1", "TRADES", "SVHN/AA", "52.62"),
    ("table1", "UIAT (One-off)", "SVHN/CW", "55.45"),
    ("table2", "HAT", "ResNet-18", "4.02"),
    ("table2", "UIAT (One-off)", "WRN-34", "13.36"),
    ("table3", "16/255/TRADES", "Robust", "18.70"),
    ("table3", "10/255/UIAT (One-off)", "Robust", "41.16"),
    ("table4", "CIFAR-10/PRN-18/UIAT", "Robust", "58.46"),
    ("table4", "CIFAR-100/WRN-28-10/Rebuffi et al.", "Natural", "59.18"),
    ("table5", "RS-FGSM + UIAT", "10/255/Robust", "0.00"),
    ("table5", "GradAlign + UIAT", "Time(s)", "107.8"),
    ("table6", "4", "FR", "0"),
    ("table6", "5", "AA", "49.11"),
]


@pytest.mark.parametrize(("table", "row", "column", "value"), BY_HAND)
def test_a_figure_is_the_papers(table: str, row: str, column: str, value: str) -> None:
    assert paper_figure(table, row, column) == value


def test_no_figure_is_missing() -> None:
    counts = Counter(table for table, _, _ in read_figures())
    rows_and_columns = {"table1": 6 * 12, "table2": 6 * 3, "table3": 12 * 2, "table4": 16 * 2, "table5": 6 * 7}
    assert counts == {**rows_and_columns, "table6": 5 * 6}


def test_the_recorded_extraction_found_no_difference() -> None:
    lines = (ROOT / "docs" / "paper_tables_check.txt").read_text(encoding="utf-8").splitlines()
    source, figures, kept, verdict = lines
    assert re.fullmatch(r"source: paper\.tex, SHA-256 [0-9a-f]{64}", source)
    assert figures.endswith(f"; {len(read_figures())} in all")
    content = (ROOT / "src" / "uiat" / "reproduce" / "paper_tables.csv").read_bytes()
    assert kept == f"kept: paper_tables.csv, SHA-256 {hashlib.sha256(content).hexdigest()}"
    assert verdict == "no difference"


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("table")])
def test_every_figure_is_used_at_the_paper_scale(name: str) -> None:
    """Every number of a table stands beside one of ours, and vice versa."""
    table = EXPERIMENTS[name](SCALES["paper"])
    assert isinstance(table, Table)
    shown = Counter(entry.paper for entry in table.entries if entry.paper)
    kept = Counter(
        v for (t, _, column), v in read_figures().items() if t == name and column not in ("UAG", "FR", "IAM")
    )
    assert shown == kept


def place(table: str, entry: Entry) -> tuple[str, str]:
    """Return (row, column) in the paper's table of a number in our table at the paper scale."""
    match table:
        case "table1":
            return entry.row, f"{entry.group}/{entry.column}"
        case "table2":
            return entry.row, entry.column.removesuffix("-10")
        case "table3":
            return f"{entry.section.removeprefix('ε = ')}/{entry.row}", entry.column
        case "table4":
            return f"{entry.section.replace(', ', '/')}/{entry.row}", entry.column
        case "table5" if entry.group == "an epoch":
            return entry.row, "Time(s)"
        case "table5":
            return entry.row, f"{entry.group.removeprefix('ε = ')}/{entry.column}"
    return entry.row[0], {"Robust": "AA"}.get(entry.column, entry.column)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("table")])
def test_every_figure_stands_in_its_place(name: str) -> None:
    table = EXPERIMENTS[name](SCALES["paper"])
    assert isinstance(table, Table)
    for entry in table.entries:
        if entry.paper:
            assert entry.paper == read_figures()[(name, *place(name, entry))], entry


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "extract_paper_tables.py"))


SOURCE = r"""
\begin{table}[!t]
	\begin{tabular}{cccc}
		\hline
		$\epsilon$&Method&Natural&Robust\\
		\hline
		\multirow{4}{*}{10/255}&TRADES \cite{zhang2019theoretically}&82.28&38.55\\
		&\textbf{UIAT} (One-off)&82.76&41.16\\
		\cmidrule(r){1-4}
		\multirow{4}{*}{12/255}&HAT \cite{RadeM22}&79.43&33.28\\
	\end{tabular}
	\label{tab:3}
\end{table}
\begin{table*}
	\begin{tabular}{c|cccccc}
		\toprule
		&  UAG & FR & IAM &Natural &PGD-20&AA\\
		\midrule
		4 & \checkmark & & \checkmark & 84.85  & \textbf{54.29} & 48.83     \\
		\bottomrule
		\multicolumn{7}{l}{\footnotesize{UAG: Universal Adversary Generation.}}\\
	\end{tabular}
	\label{tab:6}
\end{table*}
"""


def test_the_script_reads_latex(script: dict[str, Any]) -> None:
    third = [*script["table3"](script["rows"](SOURCE, 3))]
    assert third == [
        ("10/255/TRADES", "Natural", "82.28"),
        ("10/255/TRADES", "Robust", "38.55"),
        ("10/255/UIAT (One-off)", "Natural", "82.76"),
        ("10/255/UIAT (One-off)", "Robust", "41.16"),
        ("12/255/HAT", "Natural", "79.43"),
        ("12/255/HAT", "Robust", "33.28"),
    ]
    sixth = {column: value for _, column, value in script["table6"](script["rows"](SOURCE, 6))}
    assert sixth == {"UAG": "1", "FR": "0", "IAM": "1", "Natural": "84.85", "PGD-20": "54.29", "AA": "48.83"}


def test_the_script_would_notice_a_change(script: dict[str, Any]) -> None:
    kept = dict(read_figures())
    assert script["compare"](kept, kept) == []
    wrong = {**kept, ("table6", "5", "AA"): "49.10"}
    del wrong["table2", "IAT", "WRN-28"]
    assert script["compare"](kept, wrong) == [
        "table2 | IAT | WRN-28: 15.37 in the source, nothing here",
        "table6 | 5 | AA: 49.11 in the source, 49.10 here",
    ]
