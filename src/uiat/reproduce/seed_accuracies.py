"""The accuracies of all finished runs in a folder, by method and seed: how much seeds differ, whatever the method."""

from collections import defaultdict
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from uiat.errors import UserError
from uiat.evaluation.seed_variance import SeedVariance, estimate_seed_variance
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import Attacked
from uiat.runs.published import readable_folder
from uiat.runs.run_folder import RunFolder


def seed_variance(out: Path, measure: Attacked, data: str) -> SeedVariance | None:
    """Return the variance between seeds of an accuracy, over all finished runs on a data set; `None`: too few runs."""
    files = (*out.glob("runs/*"), *out.glob("runs/*/measures"))
    return _seed_variance(out, measure, data, tuple(sorted((file.name, file.stat().st_mtime_ns) for file in files)))


@lru_cache(maxsize=64)
def _seed_variance(out: Path, measure: Attacked, data: str, state: object) -> SeedVariance | None:
    """Estimate it once for a `state` of the folder."""
    groups: dict[str, dict[int, float]] = defaultdict(dict)
    for cell in _cells(out):
        store = Store(cell, out)
        if cell.config.data.name == data and store.trained and store.has(measure):
            groups[cell.at_seed(0).key][cell.config.seed] = float(store.tensors(measure)["correct"].double().mean())
    return estimate_seed_variance(list(groups.values()))


def _cells(out: Path) -> list[Cell]:
    """Return the runs in a folder; those with learning curves, of other versions, or not readable are skipped."""
    cells = []
    for name in sorted({path.name.removesuffix(".json") for path in out.glob("runs/*")}):
        with suppress(UserError, OSError):
            cell = Cell(RunFolder(readable_folder(out / "runs" / name)).read_config())
            cells += [cell] if cell.name == name else []
    return cells
