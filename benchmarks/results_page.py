"""Write docs/results.md and README's table from the published runs: `python -m benchmarks.results_page`.

Every number on the page is read from the cards and verdicts in results/cpu; prose without numbers is in here. Pictures
are drawn from them into docs/pictures/results.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

from benchmarks.results_claims import judged, tally, verdicts
from benchmarks.results_opening import candidates, draw_forest, found_steps, opening, passes, short_takeaways
from benchmarks.results_pairs import (
    ATTACK_NAMES,
    Published,
    answers,
    beyond,
    differences,
    front_verdict,
    in_short,
    nearness,
)
from uiat.report.figure_style import save_figure
from uiat.reproduce.cell import Cell, Store, seed_stores
from uiat.reproduce.evidence import fall_from_best
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.experiments.figures import learning_cell
from uiat.reproduce.figure import Figure, PlottedPoint
from uiat.reproduce.measures import read_learning
from uiat.reproduce.output import many_seeds, table_markdown
from uiat.reproduce.scales import SCALES
from uiat.reproduce.table import Filled, Percent, Table, fill

ROOT = Path(__file__).resolve().parents[1]
PAGE, README = ROOT / "docs" / "results.md", ROOT / "README.md"
PICTURES = "pictures/results"
"""The folder of the figures, seen from the page."""
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
"""README's table is between these."""
FOLDER = ROOT / "results" / "cpu"
CPU = replace(SCALES["cpu"], finished_in=FOLDER)
RUNS = Published(FOLDER, CPU, seeds=5, least=CPU.seeds)
ORDER = ("fig2", "fronts", "plus", "questions", "tuning")
"""What comes after Table 1; the rest follows in the order of the paper."""
MAIN = ("table1-last", "table1")
README_COLUMNS = ("Natural", "PGD", "Robust")
"""So few that the table fits on a phone."""
FOREST = "parts.svg"
"""The picture of what each part of UIAT adds."""
WIDTH = 120

INTRODUCTION = """## How to read this page

This page is written by `python -m benchmarks.results_page` from the cards and per-image verdicts in `results/cpu`; a
test compares the two. Figures in parentheses are the paper's and belong to its own setting: ResNet-18 on all of
CIFAR-10 at 32×32 for 100 epochs, for which no GPU was available. Nothing here says what happens at that size.
PGD is PGD-20, and robust accuracy (Robust) is under APGD-CE + APGD-T unless a table says otherwise. The plan of the
control, the selection and the five seeds is older than their runs ([log](log.md)), except that seeds 0 to 2 of Table 1
were known when it was written."""

SETTING = """## The setting

{train:,} training images of real CIFAR-10, resized to {size}×{size} and mirrored at random but not cropped,
{validation} more to choose the best epoch by, and all {test:,} test images. ResNet of three blocks, width {width}
({parameters:,} parameters), {epochs} epochs of batches of {batch}, one cycle of the learning rate (its peak and each
method's weight: see `tuning` below), weight decay {decay:g}, PGD-10 at ε = 8/255 with the paper's α, ε', β and γ.
CIFAR-100 with its coarse classes: as many images, the same settings. So few images, and no crops, let a network of
this size fit them under attack and then overfit, as the paper's networks do on all of CIFAR-10. Weights are those of
the last epoch unless a table says otherwise: {validation} images choose the best one (under PGD-10) so badly that it
may be the ninth of {epochs}, which would be most of the spread between seeds. All runs:
`uiat reproduce all --scale cpu`; one run: its command from `--plan`. The verdicts alone, from the published runs:
`uiat reproduce claims --scale cpu --seeds {seeds}`. One thread of a CPU with {kernels} kernels, torch {torch}."""


def setting(runs: Published) -> str:
    """Describe the runs, from the configuration and from the card of one of them."""
    config = runs.scale.config("sat")
    card = Store(Cell(config), runs.out).card
    own = card["data"]
    return SETTING.format(
        train=own["train"],
        validation=own["validation"],
        test=own["test"],
        size=config.data.size,
        width=config.model.width,  # type: ignore[attr-defined]
        parameters=card["parameters"],
        epochs=config.train.epochs,
        batch=config.train.batch_size,
        decay=config.train.weight_decay,
        seeds=runs.seeds,
        kernels=card["environment"]["kernels"],
        torch=card["environment"]["versions"]["torch"],
    )


def published_weights(runs: Published) -> list[str]:
    """Name the networks whose weights are published; nothing if none are."""
    names = sorted(file.stem for file in (runs.out / "weights").glob("*.safetensors"))
    how = "`uiat.load` and the commands take the files of these runs ([reproduce.md](reproduce.md#published-runs))"
    return [f"Weights of the last epoch are published for {', '.join(names)}; {how}.", ""] if names else []


LATER_SEEDS = (
    "Figure 2's seeds beyond the first {least} were added after its claim had been undecided with these, so its "
    "interval covers the truth somewhat less often than 95 %."
)


def regime(runs: Published) -> list[str]:
    """Return what the doubled runs of SAT show of the three conditions: fitting, overfitting, and minutes."""
    cell = learning_cell(runs.scale, "sat")
    lines = []
    for store in seed_stores(cell, runs.out, runs.seeds):
        curves = read_learning(store.run.path)
        test = [100 * float(v.double().mean()) for v in curves["test robust"]]
        train = [100 * float(v.double().mean()) for v in curves["train robust"]]
        fitted = max(100 * line["train_accuracy"] for line in store.run.read_metrics() if line["kind"] == "epoch")
        best = max(test)
        row = [f"{value:.1f}" for value in (fitted, max(train), best, test[-1], best - test[-1])]
        row[2] += f" ({test.index(best) + 1})"
        lines.append(f"| {store.cell.config.seed} | " + " | ".join(row) + " |")
    if not lines:
        return []
    usual = seed_stores(Cell(runs.scale.config("sat")), runs.out, runs.seeds)
    times = [f"{store.card['training_seconds'] / 60:.1f}" for store in usual]
    head = "| seed | train, PGD-10 | train, PGD-20 | test, PGD-20, and its epoch | test, PGD-20, last epoch | fall |"
    return [
        "## Fitting and overfitting",
        "",
        "SAT for twice the epochs (Figure 2): the highest accuracy (%) on training images, mirrored and under the "
        "training attack; on 300 of them without augmentation; on 1,000 test images; and at the last epoch.",
        "",
        head,
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
        *lines,
        "",
        f"Minutes of a usual run on one core, seed by seed: {', '.join(times)}. Other work shared the machines, so the "
        "least is nearest to what one takes alone.",
        "",
        *([LATER_SEEDS.format(least=runs.least), ""] if len(lines) > runs.least else []),
    ]


def section(runs: Published, name: str) -> list[str]:
    """Return a table, or a picture with its caption; nothing before a run of it is finished or timed."""
    experiment = EXPERIMENTS[name](runs.scale)
    if isinstance(experiment, Table):
        filled = fill(experiment, runs.out, runs.seeds)
        if not filled.devices and not any(entry.cell is not None for entry in filled.numbers):
            return []
        return [table_markdown(measured(filled)).replace("# ", "## ", 1).strip(), ""]
    points = drawable(runs, experiment)
    if not points:
        return []
    picture = f"![{experiment.title}]({PICTURES}/{name}.svg)"
    return [f"## {name}: {experiment.title}", "", picture, "", experiment.caption(points), ""]


def measured(filled: Filled) -> Filled:
    """Return a table without the rows and columns that no finished run is in, and with a note that names them."""
    rows = {(entry.section, entry.row) for entry in filled.numbers}
    columns = {(entry.group, entry.column) for entry in filled.numbers}
    empty = {
        "Rows": [filled.row_label(row) for row in filled.rows() if row not in rows],
        "Columns": [column for group, column in filled.columns() if (group, column) not in columns],
    }
    table = filled.table
    entries = tuple(e for e in table.entries if (e.section, e.row) in rows and (e.group, e.column) in columns)
    omitted = (
        f"{what} without finished runs are omitted: {'; '.join(names)}." for what, names in empty.items() if names
    )
    notes = (*table.notes, *seeds_of_rows(filled), *omitted)
    return replace(filled, table=replace(table, entries=entries, notes=notes))


def seeds_of_rows(filled: Filled) -> list[str]:
    """Name how many seeds each row has, where rows differ: a mean over more seeds is not of the same runs."""
    counts: dict[tuple[str, str], int] = {}
    for entry, values in filled.numbers.items():
        if entry.cell is not None:
            row = (entry.section, entry.row)
            counts[row] = max(len(values), counts.get(row, 0))
    listed = (f"{filled.row_label(row)} ({count})" for row, count in counts.items())
    return [f"Seeds of each row: {'; '.join(listed)}."] if len(set(counts.values())) > 1 else []


def drawable(runs: Published, figure: Figure) -> list[PlottedPoint]:
    """Return the points of a figure; none before one of its lines has two."""
    points = figure.points(runs.out, runs.seeds)
    counts = Counter((point.panel, point.line) for point in points)
    return points if max(counts.values(), default=0) > 1 else []


def draw_pictures(runs: Published) -> list[Path]:
    """Draw every figure that has a line to show, and return the files."""
    files = []
    for name, build in EXPERIMENTS.items():
        figure = build(runs.scale)
        if isinstance(figure, Figure) and (points := drawable(runs, figure)):
            files.append(PAGE.parent / PICTURES / f"{name}.svg")
            save_figure(figure.draw(points, runs.out, runs.seeds, f"{figure.title} ({runs.scale.banner})"), files[-1])
    if any((found := found_steps(runs)).values()):
        files.append(PAGE.parent / PICTURES / FOREST)
        save_figure(draw_forest(found, f"What each part adds ({runs.scale.banner})"), files[-1])
    return files


NOT_HERE = """## What is not here

No run is finished for: {names}.
Rows are missing from the tables above for lack of time: runs that decide a claim of the paper, and the rows of Table 1
on CIFAR-10, came first. Each is one command (`uiat reproduce NAME --scale cpu`, [reproduce.md](reproduce.md)).
Coarse CIFAR-100 has SAT, TRADES, UIAT and one-off UIAT alone. AutoAttack itself is measured on some runs, to see how
close its first two attacks come. Schedules of λ were not tried for `uiat-plus`. Open questions whose rows are missing
keep the defaults of [decisions.md](decisions.md), untested.
Table 4 is omitted on purpose: it needs generated images, and a generative model that has seen 3,000 small images
would reproduce little but these. SVHN is omitted because CIFAR-100's coarse classes are the second data set here."""


def page(runs: Published) -> str:
    """Return the whole page."""
    names = [*ORDER, *(name for name in EXPERIMENTS if name not in ORDER)]
    sections = {name: section(runs, name) for name in names}
    main = [line for name in MAIN for line in sections.pop(name)]
    findings = judged(runs)
    found = found_steps(runs)
    lines = [
        "# Results",
        "",
        *opening(runs, found, f"{PICTURES}/{FOREST}"),
        INTRODUCTION,
        "",
        tally(findings),
        "",
        *in_short(runs),
        *verdicts(findings),
        setting(runs),
        "",
        *published_weights(runs),
        *main,
        *nearness(runs),
        *differences(runs),
        *regime(runs),
        *beyond(runs),
    ]
    more = {"questions": answers, "fronts": front_verdict}
    for name, own in sections.items():
        lines += [*own, *(more[name](runs) if name in more else ())]
    missing_names = ", ".join(f"`{name}`" for name, own in sections.items() if not own)
    lines.append(NOT_HERE.format(names=missing_names))
    return "\n".join(wrapped(line) for part in lines for line in part.split("\n")) + "\n"


def wrapped(line: str) -> str:
    """Return a line of prose or of a list, wrapped; tables and pictures are returned unchanged."""
    if line.startswith(("|", "![")) or len(line) <= WIDTH:
        return line
    indent = re.match(r"[ -]*", line)
    assert indent is not None
    return textwrap.fill(
        line, WIDTH, subsequent_indent=" " * indent.end(), break_long_words=False, break_on_hyphens=False
    )


def readme(runs: Published) -> str:
    """Return README with the takeaways and a narrow Table 1 for CIFAR-10 between the marks."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    sentences = [wrapped(f"- **{sentence}**") for sentence in short_takeaways(runs, found_steps(runs))]
    picture = f"![{EXPERIMENTS['fig2'](runs.scale).title}]({PAGE.parent.name}/{PICTURES}/fig2.svg)"
    parts = [before + BEGIN, *sentences, "", *readme_table(runs), "", picture, "", wrapped(falls(runs)), END]
    return "\n".join(parts) + after


def readme_table(runs: Published) -> list[str]:
    """Return the accuracies and the passes of every method with finished runs."""
    columns = [Percent(runs.scale.attacked(column), digits=1) for column in README_COLUMNS]
    rows = {}
    for name, config in candidates(runs).items():
        values = [reading.values(Cell(config), runs.out, runs.seeds) for reading in columns]
        if any(values):
            rows[name] = [spread(own) for own in values] + [f"{passes(config):.1f}"]
    heads = [*(ATTACK_NAMES[column] for column in README_COLUMNS), "passes an image"]
    lines = [
        f"| {runs.scale.data['CIFAR-10'].removeprefix(f'{runs.scale.name}: ')} | {' | '.join(heads)} |",
        "| --- |" + " ---: |" * len(heads),
    ]
    return lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]


def spread(values: Sequence[float]) -> str:
    """Return mean ± standard deviation, the mean alone of one value, and a dash for none."""
    if not values:
        return "–"
    return f"{mean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def falls(runs: Published) -> str:
    """Say by how much robust accuracy falls after its best epoch over doubled epochs, for each method of Figure 2."""
    parts: list[str] = []
    counts: set[int] = set()
    for name, method in (("SAT", "sat"), ("one-off UIAT", "uiat-oneoff")):
        stores = seed_stores(learning_cell(runs.scale, method), runs.out, runs.seeds)
        fall = [100 * float(fall_from_best(read_learning(store.run.path)["test robust"]).mean()) for store in stores]
        parts += [f"{name} {mean(fall):.1f}"] if fall else []
        counts |= {len(fall)} if fall else set()
    text = "Fall of PGD-20 accuracy from its best epoch to the last, over twice the epochs"
    return f"{text}: {', '.join(parts)} points ({many_seeds(sorted(counts))})."


if __name__ == "__main__":
    (PAGE.parent / PICTURES).mkdir(parents=True, exist_ok=True)
    for path in draw_pictures(RUNS):
        print(f"drawn: {path}")
    for path, text in ((PAGE, page(RUNS)), (README, readme(RUNS))):
        path.write_text(text, encoding="utf-8")
        print(f"written: {path}")
