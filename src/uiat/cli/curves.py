"""`uiat curves TARGET`: accuracy against ε for the easier and the harder half of the test images."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

from rich.table import Table

from uiat.cli.options import suggest
from uiat.cli.output_paths import out_folder
from uiat.cli.subject_options import SubjectField, parse_subject_command, same_subject
from uiat.config import ModelT
from uiat.errors import UserError
from uiat.evaluation.curve_measurement import CurveVerdicts, check_count, default_grid, measure, plan_points
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.subject import LoadedSubject, load_subject, open_ledger
from uiat.fields import check_radius
from uiat.progress import PipeSafeConsole, print_message, print_result
from uiat.report.curve_plot import write_curves, write_difference
from uiat.report.figure_style import in_levels, show_radius
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import choose_model, locate


@dataclass(frozen=True)
class Curves(Generic[ModelT]):
    """Measure accuracy against ε for the easier and the harder half of the test images."""

    subject: SubjectField[ModelT]
    """The network and the images."""
    attack: str = "pgd-20"
    """The attack at ε above 0, as in `uiat list attacks`."""
    grid: tuple[float, ...] | None = None
    """The values of ε, such as `--grid -8/255 0 8/255`: below 0 the inverse perturbation of radius |ε|, at 0 natural
    images, above 0 the attack; by default −ε to 2ε in steps of ε/4."""
    against: str | None = None
    """Another run: also draw the difference of accuracies, TARGET minus this run, at each ε."""
    against_model: str = ""
    """The network of the other run, as `module:callable`, if it is custom and not that of TARGET."""
    out: str | None = None
    """The folder to write; by default `curves` in the run's folder, or in the current folder for a weights file."""
    restart: bool = False
    """Start from scratch instead of resuming an interrupted measurement with the same options."""


def main(args: list[str]) -> int:
    """Run the command."""
    target, options = parse_subject_command(Curves, args, "uiat curves")
    subjects = [load_subject(target, options.subject)]
    if options.against is not None:
        subjects.append(_load_other(subjects[0], options.against, options.against_model))
    first = subjects[0]
    grid = default_grid(first.base.eps) if options.grid is None else options.grid
    for eps in options.grid or ():
        check_radius("a radius of --grid", abs(eps), first.base.norm)
    classes, seed = first.images.spec.num_classes, options.subject.seed
    points = plan_points(grid, options.attack, first.base, num_classes=classes, seed=seed)
    check_count(len(first.images))
    folder = out_folder(first, options.out, "curves")
    curves: list[CurveVerdicts] = []
    ledgers: list[Ledger] = []
    for subject in subjects:
        size, settings = options.subject.batch_size, ("curves", options.attack, *map(repr, grid))
        with open_ledger(subject, settings, False, options.restart) as ledger:
            if ledger.resumed:
                print_message("resuming an interrupted measurement (--restart starts from scratch)")
            found = measure(subject.fast, subject.images, points, batch_size=size, device=subject.device, ledger=ledger)
        ledgers.append(ledger)
        curves.append(found)
    folder.mkdir(parents=True, exist_ok=True)
    write_curves(folder, first, options.attack, curves[0])
    if len(subjects) > 1:
        write_difference(folder, (first, subjects[1]), options.attack, (curves[0], curves[1]))
    for ledger in ledgers:
        ledger.close()
    for notice in dict.fromkeys(notice for curve in curves for notice in curve.notices):
        print_message(f"note: {notice}")
    _print_table(first, curves[0], folder)
    suggest("done; next:", "uiat", "inverse", *same_subject(args))
    return 0


def _load_other(subject: LoadedSubject, against: str, named: str) -> LoadedSubject:
    """Load the network of the run to compare with, for the images and the threat model of `subject`."""
    place, data = locate(against), subject.options.data
    config = RunFolder.open(place).read_config()
    for part in ("name", "size"):
        mine, other = getattr(data, part), getattr(config.data, part)
        if mine != other:
            raise UserError(
                f"{against} was trained with data.{part} {other}, {subject.target} with {mine}: "
                f"give a run with data.{part} {mine}."
            )
    model = config.model
    if model != subject.options.model:
        model = choose_model(model, named, place, "--against-model")
    compared = load_subject(place, replace(subject.options, model=model))
    return replace(compared, base=subject.base)


def _print_table(subject: LoadedSubject, curve: CurveVerdicts, folder: Path) -> None:
    table = Table(title=f"{subject.weights_file}, {len(subject.images)} images")
    for heading in ("ε", "", "all", "easier", "harder", "gap"):
        table.add_column(heading, justify="left" if not heading else "right")
    groups: dict[str, Any] = {name: verdicts.double().mean(dim=1) for name, verdicts in curve.groups().items()}
    levels = in_levels(curve.grid)
    for k, point in enumerate(curve.points):
        values = [float(group[k]) for group in groups.values()]
        shown = [f"{value:.2%}" for value in (*values, values[1] - values[2])]
        table.add_row(show_radius(point.eps, levels), point.name, *shown)
    PipeSafeConsole().print(table)
    print_result(f"written: {folder}")
