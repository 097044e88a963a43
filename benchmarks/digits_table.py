"""Markdown table of every method on digits, over seeds; missing runs are trained and evaluated.

    python benchmarks/digits_table.py [--seeds 3] [--methods sat uiat …] [--out runs/digits-table]

Accuracies on the 359 test images, mean and standard deviation over seeds, weights of the best epoch on the validation
split. A run takes about a minute on one core; a stopped table is resumed with its next run.
"""

import argparse
import json
import statistics
from pathlib import Path

from uiat.cli import main as uiat
from uiat.methods import METHODS

ATTACKS = ("natural", "pgd-20", "cw")


def result(method: str, seed: int, folder: Path) -> dict[str, float]:
    """Return a run's accuracies in percent; train and evaluate it if it is missing."""
    run, found = folder / f"{method}-s{seed}", folder / f"{method}-s{seed}.json"
    if not found.exists():
        begun = (run / "config.json").exists()
        words = (
            ["--resume", str(run)] if begun else [f"digits-resnet8-{method}", "--seed", str(seed), "--out", str(run)]
        )
        assert uiat(["train", *words]) == 0
        assert uiat(["evaluate", str(run), "--attacks", *ATTACKS, "--json", str(found)]) == 0
    attacks = json.loads(found.read_text())["attacks"]
    return {name: 100 * attacks[name]["accuracy"] for name in ATTACKS}


def cell(values: list[float]) -> str:
    mean = statistics.mean(values)
    return f"{mean:.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--out", default="runs/digits-table")
    args = parser.parse_args()
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    rows = {m: [result(m, seed, folder) for seed in range(args.seeds)] for m in args.methods}
    print("| method | natural | PGD-20 | CW |\n| --- | --- | --- | --- |")
    for method, found in rows.items():
        print(f"| {method} | " + " | ".join(cell([row[name] for row in found]) for name in ATTACKS) + " |")


if __name__ == "__main__":
    main()
