"""`uiat inverse TARGET`: inverse and universal inverse examples, and how often they lower the loss."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import torch
from rich.table import Table

from uiat.cli.options import check_counts, suggest, take
from uiat.cli.output_paths import out_folder
from uiat.cli.subject_options import SubjectField, parse_subject_command, same_subject
from uiat.config import ModelT
from uiat.evaluation.inverses import LOSSES, find_z, inverse_settings, make_inverses, shown_places
from uiat.evaluation.subject import LoadedSubject, load_subject
from uiat.progress import PipeSafeConsole
from uiat.report.inverse_grid import InverseResult, write_inverses


@dataclass(frozen=True)
class InverseOptions(Generic[ModelT]):
    """Generate inverse and universal inverse examples of test images, and count how often they lower the loss."""

    subject: SubjectField[ModelT]
    """The network and the images."""
    rows: int = 5
    """Number of classes in the picture: the first ones that have an image."""
    per_class: int = 1
    """Number of images of each class in the picture."""
    save: int = 1000
    """Number of images, the first ones, that are written to inverse.safetensors in addition to those of the picture."""
    passes: int = 3
    """Passes over the training images, if z is computed again."""
    z_images: int = 2000
    """Largest number of training images from which z is computed."""
    inverse_eps: float | None = None
    """ε': the inverse radius; by default that of the run, or ε/2."""
    beta: float | None = None
    """β of Eq. 4; by default that of the run, or 1; 0 for a network whose features cannot be found."""
    out: str | None = None
    """The folder to write; by default `inverse` in the run's folder, or in the current folder for a weights file."""


def main(args: list[str]) -> int:
    """Run the command."""
    target, options = parse_subject_command(InverseOptions, args, "uiat inverse")
    check_counts(options, rows=1, per_class=1, save=0)
    subject = load_subject(target, options.subject)
    method = subject.run.read_config().method if subject.run is not None else None
    settings = inverse_settings(method, subject.base, eps=options.inverse_eps, beta=options.beta)
    folder = out_folder(subject, options.out, "inverse")
    universal = find_z(subject, settings, passes=options.passes, count=options.z_images)
    shown = shown_places(subject.images.y, options.rows, options.per_class)
    inverses = make_inverses(
        subject.model,
        subject.fast,
        subject.images,
        settings,
        universal.z,
        torch.cat([shown, torch.arange(min(options.save, len(subject.images)))]).unique(),
        batch_size=options.subject.batch_size,
        seed=options.subject.seed,
        device=subject.device,
    )
    result = InverseResult(settings, universal, inverses, shown)
    folder.mkdir(parents=True, exist_ok=True)
    write_inverses(folder, subject, result)
    _print_table(subject, result, folder)
    again = ["evaluate", *same_subject(args), "--attacks", "natural", "autoattack"]
    named, _ = take(args, ("--model", "--data"))
    code = [word for pair in named.items() if ":" in pair[1] for word in pair]
    suggest("done; next:", "uiat", *(again if subject.run is None else ["report", args[0], *code]))
    return 0


def _print_table(subject: LoadedSubject, result: InverseResult, folder: Path) -> None:
    """Print accuracies and shares, by class and overall, and where z comes from."""
    table = Table(title=f"{subject.weights_file}, {len(subject.images)} images")
    table.caption = (
        "natural, inverse and universal inverse examples; ↓: share of images whose cross-entropy (CE) "
        f"or loss of Eq. 4 (L_Inv) they lower\nz: {result.universal.source}"
    )
    table.add_column("class")
    both = "inv. / univ."
    for heading in ("images", f"accuracy (%)\nnat. / {both}", f"CE ↓ (%)\n{both}", f"L_Inv ↓ (%)\n{both}"):
        table.add_column(heading, justify="right", no_wrap=True)
    content = result.inverses.table(subject.images.classes)
    for name, row in content["classes"].items():
        table.add_row(name, *_cells(row))
    table.add_section()
    table.add_row("all", *_cells(content["overall"]))
    console = PipeSafeConsole()
    console.print(table)
    console.print_line(f"written: {folder}")


def _cells(row: dict[str, Any]) -> list[str]:
    groups = [row["accuracy"], *(row["lowered"][loss] for loss in LOSSES)]
    return [str(row["n"]), *(" / ".join(f"{100 * share:5.1f}" for share in group.values()) for group in groups)]
