"""Pages of tables: Markdown, LaTeX and records, with the paper's figures in parentheses."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

from uiat.reproduce.output import latex, many_seeds, weights_note, write_pages
from uiat.reproduce.table import Entry, Filled, Table, fill

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
        cells = [show_entry(filled, filled.at(row, column), bold="**%s**") for column in columns]
        lines.append(f"| {filled.row_label(row)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", table_caption(filled), ""])


def table_records(filled: Filled) -> list[dict[str, Any]]:
    """Return every entry with its number, the paper's, and the runs it was read from."""
    records = []
    for entry in filled.table.entries:
        values = filled.numbers.get(entry, ())
        records.append(
            {
                "table": filled.table.name,
                "scale": filled.table.scale.name,
                "section": entry.section,
                "row": entry.row,
                "group": entry.group,
                "column": entry.column,
                "mean": mean(values) if values else None,
                "std": stdev(values) if len(values) > 1 else None,
                "seeds": len(values),
                "paper": entry.paper or None,
                "best": filled.is_best(entry),
                "runs": [cell.name for cell in entry.runs(filled.seeds)],
            }
        )
    return records


def table_latex(filled: Filled) -> str:
    """Return the table as LaTeX with booktabs' rules."""
    table, columns = filled.table, filled.columns()
    groups = list(dict.fromkeys(group for group, _ in columns))
    wide = len(columns) > WIDE
    needed = "booktabs,graphicx" if wide else "booktabs"
    lines = [rf"% needs \usepackage{{{needed}}}", r"\begin{table*}", r"\centering"]
    lines += [
        rf"\caption{{{latex(table.title)}. {latex(table_caption(filled))}}}",
        rf"\label{{tab:{table.name}}}",
    ]
    lines += [r"\resizebox{\linewidth}{!}{%"] if wide else []
    lines += [rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", r"\toprule"]
    if any(groups):
        counts = [sum(g == group for g, _ in columns) for group in groups]
        spans = [rf"\multicolumn{{{c}}}{{c}}{{{latex(g)}}}" for g, c in zip(groups, counts, strict=True)]
        starts = [2 + sum(counts[:k]) for k in range(len(counts))]
        rules = [rf"\cmidrule(lr){{{s}-{s + c - 1}}}" for s, c in zip(starts, counts, strict=True)]
        lines += [" & " + " & ".join(spans) + r" \\", "".join(rules)]
    lines += [latex(table.label) + " & " + " & ".join(latex(c) for _, c in columns) + r" \\", r"\midrule"]
    before = None
    for section, row in filled.rows():
        if before is not None and section != before:
            lines.append(r"\midrule")
        before = section
        label = filled.row_label((section, row))
        cells = [
            show_entry(filled, filled.at((section, row), c), bold=r"\textbf{%s}", plus_minus=r" $\pm$ ", missing="--")
            for c in columns
        ]
        lines.append(f"{latex(label)} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}" + "}" * wide, r"\end{table*}", ""])
