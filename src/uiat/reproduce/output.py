"""Written tables (Markdown, CSV, JSON, LaTeX, with the paper's figures in parentheses), and index.md."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from uiat.io import write_json, write_text
from uiat.reproduce.cell import Cell, Store, merge
from uiat.reproduce.measures import Measure
from uiat.reproduce.table import Entry, Filled, Table, fill
from uiat.reproduce.timing import TableBenchmark

if TYPE_CHECKING:
    from uiat.reproduce.experiments import Experiment


def weights_note(measures: Iterable[Measure | None]) -> list[str]:
    """State which weights were measured, if they are the same everywhere."""
    names = {measure.weights for measure in measures if measure is not None}
    return [f"Weights of the {name} epoch." for name in names if len(names) == 1]


def many_seeds(counts: list[int]) -> str:
    """Format the number of seeds, given sorted counts; they differ while runs are unfinished."""
    if not counts or counts[-1] == 1:
        return "one seed"
    return f"{counts[-1]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds, as far as finished"


def records_csv(records: list[dict[str, Any]]) -> str:
    """Return records with the same fields as CSV; lists are joined by spaces."""
    stream = io.StringIO()
    names = list(records[0])
    lines = csv.DictWriter(stream, names, lineterminator="\n")
    lines.writeheader()
    for record in records:
        lines.writerow({k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in record.items()})
    return stream.getvalue()


def write_pages(
    experiment: "Experiment",
    out: Path,
    caption: str,
    content: dict[str, list[dict[str, Any]]],
    pages: tuple[str, str],
) -> list[Path]:
    """Write NAME.md and NAME.tex (`pages`), .csv and .json of a table or figure; `content` names its records."""
    paths = {ending: out / f"{experiment.name}.{ending}" for ending in ("md", "csv", "tex", "json")}
    (records,) = content.values()
    for ending, text in (("md", pages[0]), ("csv", records_csv(records)), ("tex", pages[1])):
        write_text(paths[ending], text)
    facts = {"schema": 1, "name": experiment.name, "title": experiment.title, "scale": experiment.scale.name}
    write_json(paths["json"], {**facts, "caption": caption, **content})
    return list(paths.values())


_LETTERS = {letter: f"\\{letter}" for letter in "&%_#${}"}
_LETTERS |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "–": "--", "−": "$-$"}
_GREEK = {"ε": "epsilon", "α": "alpha", "β": "beta", "γ": "gamma", "λ": "lambda", "ω": "omega"}
_LETTERS |= {letter: rf"$\{name}$" for letter, name in _GREEK.items()}
_LETTERS |= {"±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "∞": r"$\infty$", "→": r"$\to$", "§": r"\S{}", "’": "'"}
LATEX = str.maketrans({**_LETTERS, "“": "``", "”": "''", "…": r"\dots{}"})


def latex(text: str) -> str:
    """Return a text as LaTeX."""
    return text.translate(LATEX)


WIDE = 5
"""Columns beyond which a table is scaled to the width of the page."""


def write_table(table: Table, out: Path, seeds: int) -> list[Path]:
    """Write the four files of a table, with the numbers of the runs that are finished."""
    filled = fill(table, out, seeds)
    pages = (table_markdown(filled), table_latex(filled))
    return write_pages(table, out, table_caption(filled), {"entries": table_records(filled)}, pages)


def show_entry(filled: Filled, entry: Entry | None, *, bold: str, plus_minus: str = " ± ", missing: str = "–") -> str:
    """Format an entry: ours, bold if best, and the paper's figure in parentheses; `bold` has a %s."""
    if entry is None:
        return ""
    paper = f" ({entry.paper})" if entry.paper else ""
    if entry not in filled.numbers:
        return missing + paper
    values, digits = filled.numbers[entry], entry.reading.digits
    ours = f"{mean(values):.{digits}f}"
    ours = bold % ours if filled.is_best(entry) else ours
    return ours + (f"{plus_minus}{stdev(values):.{digits}f}" if len(values) > 1 else "") + paper


def table_caption(filled: Filled) -> str:
    """Return the caption of a table."""
    table = filled.table
    counts = sorted({len(values) for entry, values in filled.numbers.items() if entry.cell is not None})
    spread = "mean ± standard deviation over " if counts and counts[-1] > 1 else ""
    seeds = [spread + many_seeds(counts)] if counts else []
    paper = ["in parentheses the paper's figure, which belongs to the paper's setting"]
    paper = paper if any(entry.paper for entry in table.entries) else []
    scale = table.scale
    robust = "all test images" if scale.robust_images is None else f"{scale.robust_images} test images"
    columns = {entry.column for entry in table.entries}
    attacks = {"AA": scale.aa, "Robust": scale.robust}
    parts = ["; ".join([f"Scale {scale.name}", *seeds, *paper]) + "."]
    parts += [f"{column}: {attack} on {robust}." for column, attack in attacks.items() if column in columns]
    parts += weights_note(entry.reading.measure for entry in table.entries)
    parts += [f"Times of the fastest repetition, on {' and '.join(filled.devices)}."] if filled.devices else []
    parts += [f"A warning: {filled.timing_warning}"] if filled.timing_warning else []
    parts += ["The best of ours in each column is bold; – is not measured."]
    return " ".join([*parts, *table.notes])


def table_markdown(filled: Filled) -> str:
    """Return the table as Markdown."""
    table, columns = filled.table, filled.columns()
    plain = {"", table.scale.banner}  # the banner is printed above the table
    headings = [table.label, *(column if group in plain else f"{group}: {column}" for group, column in columns)]
    lines = [f"# {table.name}: {table.title}", "", f"**{table.scale.banner}**", ""]
    lines += ["| " + " | ".join(headings) + " |", "| --- |" + " ---: |" * len(columns)]
    for row in filled.rows():
        cells = [show_entry(filled, filled.places.get((row, column)), bold="**%s**") for column in columns]
        lines.append(f"| {filled.row_label(row)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", table_caption(filled), ""])


def table_records(filled: Filled) -> list[dict[str, Any]]:
    """Return every entry with its number, the paper's, and the runs it was read from."""
    records = []
    for entry in filled.table.entries:
        values = filled.numbers.get(entry, ())
        record: dict[str, Any] = {"table": filled.table.name, "scale": filled.table.scale.name}
        record |= {name: getattr(entry, name) for name in ("section", "row", "group", "column")}
        record |= {"mean": mean(values) if values else None, "std": stdev(values) if len(values) > 1 else None}
        record |= {"seeds": len(values), "paper": entry.paper or None, "best": filled.is_best(entry)}
        records.append({**record, "runs": [cell.name for cell in entry.runs(filled.seeds)]})
    return records


def table_latex(filled: Filled) -> str:
    """Return the table as LaTeX with booktabs' rules."""
    table, columns = filled.table, filled.columns()
    groups = list(dict.fromkeys(group for group, _ in columns))
    wide = len(columns) > WIDE
    needed = "booktabs,graphicx" if wide else "booktabs"
    lines = [rf"% needs \usepackage{{{needed}}}", r"\begin{table*}", r"\centering"]
    lines += [rf"\caption{{{latex(table.title)}. {latex(table_caption(filled))}}}", rf"\label{{tab:{table.name}}}"]
    lines += [r"\resizebox{\linewidth}{!}{%"] if wide else []
    lines += [rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", r"\toprule"]
    if any(groups):
        counts = [sum(g == group for g, _ in columns) for group in groups]
        spans = [rf"\multicolumn{{{c}}}{{c}}{{{latex(g)}}}" for g, c in zip(groups, counts, strict=True)]
        starts = [2 + sum(counts[:k]) for k in range(len(counts))]
        rules = [rf"\cmidrule(lr){{{s}-{s + c - 1}}}" for s, c in zip(starts, counts, strict=True)]
        lines += [" & " + " & ".join(spans) + r" \\", "".join(rules)]
    lines += [latex(table.label) + " & " + " & ".join(latex(c) for _, c in columns) + r" \\", r"\midrule"]
    style = {"bold": r"\textbf{%s}", "plus_minus": r" $\pm$ ", "missing": "--"}
    for number, (_, rows) in enumerate(groupby(filled.rows(), key=itemgetter(0))):
        lines += [r"\midrule"] if number else []
        for row in rows:
            cells = [show_entry(filled, filled.places.get((row, column)), **style) for column in columns]
            lines.append(f"{latex(filled.row_label(row))} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}" + "}" * wide, r"\end{table*}", ""])


def commits(cells: Iterable[Cell], out: Path) -> Counter[str]:
    """Count the commits that produced the finished runs and measurements of some cells."""
    tally: Counter[str] = Counter()
    for store in (Store(cell, out) for cell in cells):
        if store.trained:
            facts = (store.card, *(store.read(measure) or {} for measure in store.cell.measures))
            tally.update(sorted({_commit(each["environment"]) for each in facts if "environment" in each}))
    return tally


def _commit(environment: dict[str, Any]) -> str:
    """Return the short commit; outside a source tree, the version that is installed."""
    commit = environment.get("git_commit")
    return str(commit)[:10] if commit else f"version {environment.get('versions', {}).get('uiat', 'unknown')}"


def mixed(cells: Iterable[Cell], out: Path) -> str:
    """Return a line that warns of several commits; empty where there is one, or none."""
    by_commit = commits(cells, out)
    if len(by_commit) < 2:
        return ""
    counts = ", ".join(f"{commit} ({count})" for commit, count in by_commit.most_common())
    return f"mixed: the finished runs in {out} were trained or measured by different commits of the code: {counts}"


def write_index(
    experiments: "Sequence[Experiment]", benchmarks: Sequence[TableBenchmark], out: Path, seeds: int
) -> None:
    """Write index.md: links to all files that are in the folder, and the commits that produced the runs."""
    lines = [f"# Tables and figures in {out.name}", ""]
    for experiment in experiments:
        files = sorted(path.name for path in out.glob(f"{experiment.name}.*"))
        if files:
            links = ", ".join(f"[{name.rpartition('.')[2]}]({name})" for name in files)
            commit_list = ", ".join(commits(merge(experiment.cells(seeds)), out))
            by = f"; runs by {commit_list}" if commit_list else ""
            lines.append(f"- {experiment.name}, {experiment.title}: {links}{by}")
    if (out / "claims.md").exists():
        lines.append("- claims, the verdict on each claim of the paper: [md](claims.md), [json](claims.json)")
    lines += [
        f"- {benchmark.title}, {benchmark.measured}: [json]({path.relative_to(out).as_posix()})"
        for benchmark in benchmarks
        if (path := benchmark.timing.known(out)) is not None
    ]
    write_text(out / "index.md", "\n".join([*lines, ""]))
