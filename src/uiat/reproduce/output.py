"""Files of tables and figures (Markdown, CSV, JSON, LaTeX): what both share, and index.md."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uiat.io import write_json, write_text
from uiat.reproduce.cell import Cell, Store, merge
from uiat.reproduce.measures import Measure
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


LATEX = {letter: f"\\{letter}" for letter in "&%_#${}"}
LATEX |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "–": "--", "−": "$-$"}
GREEK = {"ε": "epsilon", "α": "alpha", "β": "beta", "γ": "gamma", "λ": "lambda", "ω": "omega"}
LATEX |= {letter: rf"$\{name}$" for letter, name in GREEK.items()}
LATEX |= {"±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "∞": r"$\infty$", "→": r"$\to$", "§": r"\S{}", "’": "'"}
LATEX |= {"“": "``", "”": "''", "…": r"\dots{}"}


def latex(text: str) -> str:
    """Return a text as LaTeX."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def commits(cells: Iterable[Cell], out: Path) -> Counter[str]:
    """Count the commits that produced the finished runs and measurements of some cells."""
    tally: Counter[str] = Counter()
    for store in (Store(cell, out) for cell in cells):
        if store.trained:
            measured = [facts for measure in store.cell.measures if (facts := store.read(measure)) is not None]
            tally.update({_commit(facts["environment"]) for facts in (store.card, *measured) if "environment" in facts})
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
    known = [(benchmark, path) for benchmark in benchmarks if (path := benchmark.timing.known(out)) is not None]
    lines += [
        f"- {benchmark.title}, {benchmark.measured}: [json]({path.relative_to(out).as_posix()})"
        for benchmark, path in known
    ]
    write_text(out / "index.md", "\n".join([*lines, ""]))
