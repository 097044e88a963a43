"""The figures of the paper's six tables, kept once; `benchmarks/extract_paper_tables.py` extracts them anew."""

import csv
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("paper_tables.csv")
FIELDS = ("table", "row", "column", "value")


@cache
def read_figures() -> dict[tuple[str, str, str], str]:
    """Return every figure by (table, row, column), as the paper writes it: `50.40` stays `50.40`."""
    if not FILE.exists():
        return {}
    with FILE.open(newline="", encoding="utf-8") as file:
        return {(line["table"], line["row"], line["column"]): line["value"] for line in csv.DictReader(file)}


def paper_figure(table: str, row: str, column: str) -> str:
    """Return one figure; a place that the paper's table does not have is a mistake in this package."""
    return read_figures()[table, row, column]
