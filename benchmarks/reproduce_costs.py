"""Print the cost of every table and figure from scratch, as Markdown: `python benchmarks/reproduce_costs.py`.

Numbers of runs and passes are exact, as in `uiat reproduce NAME --plan`. Hours are the plan's estimate for one process
on this CPU, for the scale `cpu` only: they cannot be transferred to a GPU.
"""

from pathlib import Path

import torch

from uiat.reproduce.budget import cell_passes, seconds
from uiat.reproduce.cell import Cell, merge, with_helpers
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.scale import Scale
from uiat.reproduce.scales import SCALES

NOWHERE = Path("no-such-folder")


def cells_of(names: list[str], scale: Scale, seeds: int) -> list[Cell]:
    """Return the runs that some tables and figures need, helpers among them."""
    return with_helpers(merge(cell for name in names for cell in EXPERIMENTS[name](scale).cells(seeds)), NOWHERE)


def cost(cells: list[Cell]) -> str:
    """Return runs, and millions of passes: forward, input-backward, weight-backward."""
    passes = [cell_passes(cell.config) for cell in cells]
    return f"{len(cells)} | " + " / ".join(f"{sum(p[kind] for p in passes) / 1e6:,.0f}" for kind in range(3))


def main() -> None:
    """Print the table."""
    cpu, paper = SCALES["cpu"], SCALES["paper"]
    print("| name | runs, `cpu` | passes (M), `cpu` | hours, `cpu` | runs, `paper` | passes (M), `paper` |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, names in {**{name: [name] for name in EXPERIMENTS}, "all": list(EXPERIMENTS)}.items():
        small, large = cells_of(names, cpu, cpu.seeds), cells_of(names, paper, paper.seeds)
        hours = sum(sum(seconds(cell, torch.device("cpu"))) for cell in small) / 3600
        print(f"| `{name}` | {cost(small)} | {hours:.0f} | {cost(large)} |", flush=True)


if __name__ == "__main__":
    main()
