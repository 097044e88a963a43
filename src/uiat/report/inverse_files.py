"""The files of `uiat inverse`: the examples as tensors, the shares as JSON, a grid of pictures."""

from dataclasses import dataclass
from math import exp
from pathlib import Path

import torch
from torch import Tensor

from uiat import data
from uiat.config import encode
from uiat.data.images import balanced
from uiat.evaluation.inverses import KINDS, Inverses, InverseSettings, Universal
from uiat.evaluation.subject import Ready, facts
from uiat.io import write_json, write_tensors
from uiat.report.axis import in_levels, show_radius
from uiat.report.figure import save_figure
from uiat.report.inverse_grid import Row, draw_inverses
from uiat.runs.card import environment
from uiat.runs.identity import find_data


@dataclass(frozen=True)
class Result:
    """What the command found, and which images its picture shows."""

    settings: InverseSettings
    universal: Universal
    found: Inverses
    shown: Tensor


def write_inverses(folder: Path, ready: Ready, result: Result) -> None:
    """Write inverse.json, inverse.safetensors and inverse.png."""
    found, z = result.found, result.universal.z
    content = {
        **facts(ready),
        **{name: encode(getattr(result.settings, name)) for name in ("attack", "instance", "universal")},
        "z": result.universal.source,
        **found.table(ready.images.classes),
        "environment": environment(ready.device),
    }
    write_json(folder / "inverse.json", content)
    tensors = {
        "x": found.x["natural"],
        "y": found.y[found.kept],
        "x_inverse": found.x["inverse"],
        "x_universal": found.x["universal"],
        "z": z,
        "index": _places_in_test_set(ready)[found.kept],
    }
    write_tensors(folder / "inverse.safetensors", tensors, {"z": result.universal.source})
    eps = result.settings.instance.eps
    title = f"{ready.target.resolve().name}: ε' = {show_radius(eps, in_levels((eps,)))}, p of the true class"
    scale = eps if result.settings.instance.norm == "linf" else None  # an L2 ball does not bound a pixel
    save_figure(draw_inverses(_rows(ready, result), scale=scale, title=title), folder / "inverse.png")


def _rows(ready: Ready, result: Result) -> list[Row]:
    found, rows = result.found, []
    for place in result.shown.tolist():
        kept, label = int(torch.searchsorted(found.kept, place)), int(found.y[place])
        x, x_inverse, x_universal = (found.x[kind][kept] for kind in KINDS)
        p = [exp(-float(found.losses["cross_entropy"][kind][place])) for kind in KINDS]
        name, z = ready.images.classes[label], result.universal.z[label]
        rows.append(Row(name, x, x_inverse, x_universal, z, (p[0], p[1], p[2])))
    return rows


def _places_in_test_set(ready: Ready) -> Tensor:
    """Return where each examined image is in the test set."""
    options = ready.options
    if options.n is None or options.sample == "first":
        return torch.arange(len(ready.images))
    config = options.data if ready.run is None else find_data(ready.run, options.data)
    return balanced(data.load(config, options.data_dir).test.y, options.n, options.seed)
