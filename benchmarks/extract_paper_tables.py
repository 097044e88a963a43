"""Extracts the numbers of the paper's six tables from its LaTeX source, and compares them with those kept here.

    python benchmarks/extract_paper_tables.py paper.tex [--write]

Prints how many figures each table has and every difference; exits with 1 where there is one. `--write` puts what was
extracted in the place of src/uiat/reproduce/paper_tables.csv.
"""

import csv
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tyro

from uiat.reproduce.table import FIGURES_FILE, read_figures

Figure = tuple[str, str, str]
"""(table, row, column) of a value, which is kept as the paper writes it."""
CHECK = {r"\checkmark": "1", "": "0"}
DATA = ("CIFAR-10", "CIFAR-100", "SVHN")
RADII = ("6/255", "8/255", "10/255")


def extract(source: str) -> dict[Figure, str]:
    """Return every figure of the six tables."""
    readers = {1: table1, 2: table2, 3: table3, 4: table4, 5: table5, 6: table6}
    found: dict[Figure, str] = {}
    for number, reader in readers.items():
        for row, column, value in reader(rows(source, number)):
            key = (f"table{number}", row, column)
            if key in found:
                raise SystemExit(f"{key} is there twice: the source is not as expected.")
            found[key] = value
    return found


def rows(source: str, number: int) -> list[list[str]]:
    r"""Return the cells of a table that has the label tab:NUMBER, row by row, without rules and `\multirow`."""
    tables = re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", source, re.DOTALL)
    (table,) = [text for text in tables if f"\\label{{tab:{number}}}" in text]
    body = re.search(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", table, re.DOTALL)
    if body is None:
        raise SystemExit(f"table {number} has no tabular.")
    text = re.sub(r"\\(toprule|midrule|bottomrule|hline|c?midrule\([lr]+\)\{[\d-]+\})", " ", body[1])
    return [[clean(cell) for cell in row.split("&")] for row in re.split(r"\\\\", text) if "&" in row]


def clean(cell: str) -> str:
    """Return a cell's text, without the commands around them."""
    cell = re.sub(r"\\cite\{[^}]*\}", "", cell)
    cell = re.sub(r"\\multi(?:row|column)\{\d+\}\{[^}]*\}", "", cell)
    cell = re.sub(r"\\text(?:bf|it)\{([^}]*)\}", r"\1", cell).replace("{", "").replace("}", "")
    return " ".join(cell.replace("$", "").split())


def method(name: str) -> str:
    """Return a method's name in one spelling."""
    return re.sub(r"\s*\+\s*", " + ", name).replace("(One-off)", " (One-off)").replace("  ", " ").strip()


Values = Iterator[tuple[str, str, str]]


def by_headings(rows: list[list[str]], headings: list[str]) -> Values:
    """Return the values of rows that each begin with the name of a method."""
    for name, *values in rows:
        yield from ((method(name), heading, value) for heading, value in zip(headings, values, strict=True))


def table1(table: list[list[str]]) -> Values:
    return by_headings(table[2:], [f"{data}/{heading}" for data in DATA for heading in ("Natural", "PGD", "CW", "AA")])


def table2(table: list[list[str]]) -> Values:
    return by_headings(table[1:], table[0][1:])


def table3(table: list[list[str]]) -> Values:
    eps = ""
    for radius, name, *values in table[1:]:
        eps = radius or eps
        for heading, value in zip(("Natural", "Robust"), values, strict=True):
            yield f"{eps}/{method(name)}", heading, value


def table4(table: list[list[str]]) -> Values:
    data = network = ""
    for first, second, name, *values in table[1:]:
        data, network = first or data, second or network
        name = "Rebuffi et al." if name.startswith("Rebuffi") else method(name)
        for heading, value in zip(("Natural", "Robust"), values, strict=True):
            yield f"{data}/{network}/{name}", heading, value


def table5(table: list[list[str]]) -> Values:
    headings = [f"{eps}/{heading}" for eps in RADII for heading in ("Natural", "Robust")]
    return by_headings(table[2:], [*headings, "Time(s)"])


def table6(table: list[list[str]]) -> Values:
    headings = ("UAG", "FR", "IAM", "Natural", "PGD-20", "AA")
    for name, *values in table[1:]:
        for heading, value in zip(headings, values, strict=True):
            yield name, heading, CHECK.get(value, value)


def compare(found: dict[Figure, str], kept: dict[Figure, str]) -> list[str]:
    """Return a line for each figure that differs, or that one side lacks."""
    keys = sorted(found.keys() | kept.keys())
    return [
        f"{' | '.join(key)}: {found.get(key, 'nothing')} in the source, {kept.get(key, 'nothing')} here"
        for key in keys
        if found.get(key) != kept.get(key)
    ]


def main(source: tyro.conf.Positional[Path], write: bool = False) -> int:
    content = source.read_bytes()
    found = extract(content.decode("utf-8"))
    wrong = [key for key, value in found.items() if not re.fullmatch(r"\d+(\.\d+)?", value)]
    if wrong:
        raise SystemExit(f"not a number: {wrong}")
    if write:
        with FIGURES_FILE.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(("table", "row", "column", "value"))
            lines.writerows((*key, value) for key, value in found.items())
    print(f"source: {source.name}, SHA-256 {hashlib.sha256(content).hexdigest()}")
    counts = Counter(table for table, _, _ in found)
    print("figures: " + ", ".join(f"{table} {count}" for table, count in counts.items()) + f"; {len(found)} in all")
    differences = compare(found, read_figures())
    print(f"kept: {FIGURES_FILE.name}, SHA-256 {hashlib.sha256(FIGURES_FILE.read_bytes()).hexdigest()}")
    print("\n".join(differences) or "no difference")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(tyro.cli(main, description=__doc__))
