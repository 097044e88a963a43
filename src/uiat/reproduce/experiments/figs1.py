"""Figure S1: inverse and universal inverse examples with their perturbations, and how often they lower the loss."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from uiat.report.axis import in_levels, show_radius
from uiat.report.inverse_grid import Row, draw_inverses
from uiat.reproduce.cell import Cell, seed_stores
from uiat.reproduce.figure import Figure, Point, accuracy_point
from uiat.reproduce.scales import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def inverse_cell(scale: Scale) -> Cell:
    """Return the UIAT run with its inverse examples."""
    return Cell(scale.config("uiat"), (scale.inverse(),))


def build(scale: Scale) -> Figure:
    """Return the figure at a scale."""
    notes = (
        "Points: the share of test images of a class whose cross-entropy, or loss of Eq. 4 (l_inv), an inverse or a "
        "universal inverse perturbation lowers; last weights, and the z that the run ended with.",
    )
    title = "Inverse and universal inverse examples of UIAT"
    cells = (inverse_cell(scale).labelled("UIAT"),)
    return Figure("figS1", title, scale, cells, partial(_points, scale), partial(_draw, scale), notes, "class")


def _points(scale: Scale, out: Path, seeds: int) -> list[Point]:
    measure = scale.inverse()
    found = [store.tensors(measure) for store in seed_stores(inverse_cell(scale), out, seeds, measure)]
    points = []
    for name in sorted(key for key in (found[0] if found else {}) if key.startswith("lowered/")):
        _, loss, kind = name.split("/")
        for label in found[0]["y"].unique().tolist():
            verdicts = [tensors[name][tensors["y"] == label] for tensors in found]
            points.append(accuracy_point(f"{loss} lowered", kind, label, verdicts))
    return points


def _draw(scale: Scale, points: list[Point], out: Path, seeds: int, title: str) -> "Picture":
    measure = scale.inverse()
    store = seed_stores(inverse_cell(scale), out, seeds, measure)[0]  # the first that is finished
    facts, tensors = store.read(measure), store.tensors(measure)
    assert facts is not None
    rows = []
    for k, label in enumerate(facts["labels"]):
        x, x_inverse, x_universal, z = (tensors[name][k] for name in ("natural", "inverse", "universal", "z"))
        p, p_inverse, p_universal = facts["p"][k]
        rows.append(Row(label, x, x_inverse, x_universal, z, (p, p_inverse, p_universal)))
    eps = facts["eps"]
    words = f"{title}; ε' = {show_radius(eps, in_levels((eps,)))}, p of the true class"
    return draw_inverses(rows, scale=eps, title=words)
