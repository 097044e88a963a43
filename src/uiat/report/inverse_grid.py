"""The files of `uiat inverse`: examples as tensors, shares as JSON, and a grid of images (the paper's appendix C)."""

from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from uiat import data
from uiat.config_json import encode
from uiat.data.images import balanced
from uiat.evaluation.inverses import IMAGE_KINDS, Inverses, InverseSettings, Universal
from uiat.evaluation.subject import LoadedSubject, subject_facts
from uiat.io import write_json, write_tensors
from uiat.report.figure_style import in_levels, new_figure, save_figure, show_radius
from uiat.runs.identity import find_data
from uiat.runs.result_card import environment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_TITLES = (
    "natural",
    "inverse\nperturbation",
    "inverse\nadversary",
    "universal inverse\nperturbation",
    "universal inverse\nadversary",
)
SIGNED = "cividis"
"""Colour map for perturbations of grey images: blue is down, grey none, yellow up; safe if colour-blind or in print."""


@dataclass(frozen=True)
class PictureRow:
    """One image: natural, x̌ and x + z_y in [0, 1], the perturbations, and the probability of its class for each."""

    label: str
    x: Tensor
    x_inverse: Tensor
    x_universal: Tensor
    z: Tensor
    probability: tuple[float, float, float]


def draw_inverses(rows: list[PictureRow], *, scale: float | None = None, title: str) -> "Figure":
    """Draw a row for each image; perturbations are rescaled from ±scale (by default the largest) to the full range."""
    figure = new_figure(1.35 * len(COLUMN_TITLES) + 1.1, 1.5 * len(rows) + 1.0)
    axes = figure.subplots(len(rows), len(COLUMN_TITLES), squeeze=False)
    scale = scale or max(1e-12, *(float(p.abs().max()) for row in rows for p in (row.x_inverse - row.x, row.z)))
    for row, cells in zip(rows, axes, strict=True):
        pictures = (row.x, row.x_inverse - row.x, row.x_inverse, row.z, row.x_universal)
        for k, (picture, cell) in enumerate(zip(pictures, cells, strict=True)):
            _draw(cell, picture, scale if k in (1, 3) else None)
        for cell, p in zip((cells[0], cells[2], cells[4]), row.probability, strict=True):
            cell.set_xlabel(f"p = {_probability(p)}", fontsize=8, labelpad=2)
        cells[0].set_ylabel(row.label, rotation=0, ha="right", va="center", fontsize=10, parse_math=False)
    for heading, cell in zip(COLUMN_TITLES, axes[0], strict=True):
        cell.set_title(heading, fontsize=9)
    figure.suptitle(title, fontsize=10, parse_math=False)
    _explain(figure, [cell for cells in axes for cell in (cells[1], cells[3])], scale, grey=len(rows[0].x) == 1)
    return figure


def stretched(perturbation: Tensor, scale: float) -> Tensor:
    """Map a perturbation from ±scale to [0, 1], with 0 in the middle."""
    return (0.5 + perturbation / (2 * scale)).clamp(0, 1)


def _draw(axes: "Axes", picture: Tensor, scale: float | None) -> None:
    shown = picture if scale is None else stretched(picture, scale)
    pixels = shown.permute(1, 2, 0).to(torch.float32).numpy()
    if pixels.shape[2] == 1:
        colours = "gray" if scale is None else SIGNED
        axes.imshow(pixels[:, :, 0], cmap=colours, vmin=0, vmax=1, interpolation="nearest")
    else:
        axes.imshow(pixels, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])


def _explain(figure: "Figure", cells: "list[Axes]", scale: float, *, grey: bool) -> None:
    """Add the scale of the perturbations."""
    levels = in_levels((scale,))
    end = show_radius(scale if levels else float(f"{scale:.3g}"), levels)
    if not grey:
        figure.supxlabel(f"perturbations: grey is no change, the full range of a channel is ±{end}", fontsize=8)
        return
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours = ScalarMappable(Normalize(-scale, scale), SIGNED)
    bar = figure.colorbar(colours, ax=cells, location="bottom", shrink=0.6, aspect=40, ticks=[-scale, 0, scale])
    bar.ax.set_xticklabels([f"−{end}", "0", f"+{end}"], fontsize=8)


def _probability(p: float) -> str:
    """Format a probability, with more digits near 0 and 1."""
    return f"{p:.2f}" if 0.01 <= p <= 0.99 else f"{p:.4f}"


@dataclass(frozen=True)
class InverseResult:
    """The results of the command, and the positions of the images that its picture shows."""

    settings: InverseSettings
    universal: Universal
    inverses: Inverses
    shown: Tensor


def write_inverses(folder: Path, subject: LoadedSubject, result: InverseResult) -> None:
    """Write inverse.json, inverse.safetensors and inverse.png."""
    inverses, z = result.inverses, result.universal.z
    content = {
        **subject_facts(subject),
        **{name: encode(getattr(result.settings, name)) for name in ("attack", "instance", "universal")},
        "z": result.universal.source,
        **inverses.table(subject.images.classes),
        "environment": environment(subject.device),
    }
    write_json(folder / "inverse.json", content)
    tensors = {
        "x": inverses.x["natural"],
        "y": inverses.y[inverses.kept],
        "x_inverse": inverses.x["inverse"],
        "x_universal": inverses.x["universal"],
        "z": z,
        "index": _places_in_test_set(subject)[inverses.kept],
    }
    write_tensors(folder / "inverse.safetensors", tensors, {"z": result.universal.source})
    eps = result.settings.instance.eps
    title = f"{subject.target.resolve().name}: ε' = {show_radius(eps, in_levels((eps,)))}, p of the true class"
    scale = eps if result.settings.instance.norm == "linf" else None  # an L2 ball does not bound a pixel
    save_figure(draw_inverses(_rows(subject, result), scale=scale, title=title), folder / "inverse.png")


def _rows(subject: LoadedSubject, result: InverseResult) -> list[PictureRow]:
    inverses, rows = result.inverses, []
    for place in result.shown.tolist():
        kept, label = int(torch.searchsorted(inverses.kept, place)), int(inverses.y[place])
        x, x_inverse, x_universal = (inverses.x[kind][kept] for kind in IMAGE_KINDS)
        p = [exp(-float(inverses.losses["cross_entropy"][kind][place])) for kind in IMAGE_KINDS]
        name, z = subject.images.classes[label], result.universal.z[label]
        rows.append(PictureRow(name, x, x_inverse, x_universal, z, (p[0], p[1], p[2])))
    return rows


def _places_in_test_set(subject: LoadedSubject) -> Tensor:
    """Return the position of each image in the test set."""
    options = subject.options
    if options.n is None or options.sample == "first":
        return torch.arange(len(subject.images))
    config = options.data if subject.run is None else find_data(subject.run, options.data)
    return balanced(data.load_splits(config, options.data_dir).test.y, options.n, options.seed)
