"""Tune the weights and learning rates of the small recipes: a grid for each method, selected on validation images.

    python benchmarks/tune_small_recipes.py --data digits --seeds 0 1 2 --out results/tuning/digits.jsonl

Each finished run appends a line of JSON to the file; runs that are in the file are skipped, so a stopped command
resumes. All methods have the same number of runs: four values of the method's own weight (SAT has none: weight decay)
at three learning rates, the default rate first. The setting with the highest natural + PGD-20 accuracy on the
validation images, at the epoch that the run reports, is selected; test accuracies are recorded, but select nothing.
`--show` trains nothing and prints the tables of what is finished, as Markdown.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import torch

from uiat import data
from uiat.config import AnyConfig, Training
from uiat.data.data_config import DataConfig
from uiat.engine.loop import train
from uiat.evaluation.suite import accuracy
from uiat.io import append
from uiat.methods import get_method
from uiat.recipes import small
from uiat.recipes.variants import at_radius, tuned
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import load

RECIPES = {"digits": (small.digits, small.DIGITS_EPS), "cifar10": (small.cifar10_small, 8 / 255)}
"""The recipes that are tuned, and their ε."""
RATES = (0.2, 0.1, 0.4)
"""Learning rates: the default, half and double."""
DECAY = "weight_decay"
_LAM = (3.5, 2.0, 1.0, 0.5)
GRID: dict[str, tuple[str, tuple[float, ...]]] = {
    "sat": (DECAY, (5e-4, 2.5e-4, 1.25e-4, 1e-3)),
    "trades": ("omega", (6.0, 3.0, 1.5, 12.0)),
    "mart": ("beta", (5.0, 2.5, 1.25, 10.0)),
    "hat": ("beta", (2.5, 1.25, 0.625, 5.0)),
    "iat": ("lam", _LAM),
    "uiat": ("lam", _LAM),
    "uiat-oneoff": ("lam", _LAM),
}
"""A method's own weight and its values, the default first."""


@dataclass(frozen=True)
class Setting:
    """A method with a value of its weight and a learning rate."""

    method: str
    value: float
    lr: float

    def config(self, name: str, seed: int) -> AnyConfig:
        """Return the recipe for a data set with this setting, whatever the recipe itself was tuned to."""
        (recipe, eps), field = RECIPES[name], GRID[self.method][0]
        config = replace(recipe(self.method), seed=seed, method=at_radius(get_method(self.method), eps))
        return tuned(config, {"lr": self.lr, "weight_decay": Training().weight_decay, field: self.value})


Run = tuple[Setting, int]
"""A setting and a seed."""
Results = dict[Run, dict[str, float]]
"""Finished runs: accuracies in percent."""


def settings(method: str) -> list[Setting]:
    """Return a method's settings, the default first."""
    return [Setting(method, value, lr) for lr in RATES for value in GRID[method][1]]


def plan(methods: Iterable[str], seeds: Sequence[int]) -> list[Run]:
    """Return all runs in order: learning rate by learning rate, and within one seed by seed."""
    every = [setting for method in methods for setting in settings(method)]
    return [(each, seed) for lr in RATES for seed in seeds for each in every if each.lr == lr]


def read_results(file: Path, name: str) -> Results:
    """Return the finished runs in a file; an incomplete last line, of a killed command, is skipped."""
    results = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["data"] == name:
            results[Setting(record["method"], record["value"], record["lr"]), record["seed"]] = record["accuracy"]
    return results


@cache
def load_splits(config: DataConfig, folder: str | None) -> data.Splits:
    """Load the images once for all runs."""
    return data.load_splits(config, folder)


def measure(config: AnyConfig, folder: str | None) -> dict[str, float] | None:
    """Train a run and return the accuracies (%) of the epoch it reports; `None` if it was stopped."""
    splits, attack = load_splits(config.data, folder), config.validate.attack(config.method)
    with TemporaryDirectory() as place:
        run = RunFolder.create(Path(place) / "run", config)
        if not train(config, run, splits, torch.device("cpu")):
            return None
        best, network = run.read_card()["best"], load(run.path)
        natural, robust = (accuracy(network, splits.test, each).accuracy for each in (None, attack))
    found = {"natural": best["val_natural"], "robust": best["val_robust"]}
    found |= {"test natural": natural, "test robust": robust}
    return {name: round(100 * value, 4) for name, value in found.items()}


def score(accuracies: Sequence[Mapping[str, float]]) -> float:
    """Return what settings are selected by: natural + PGD-20 accuracy on validation images, mean over seeds."""
    return mean(own["natural"] + own["robust"] for own in accuracies)


def finished(results: Results, method: str, seeds: Sequence[int]) -> dict[Setting, list[dict[str, float]]]:
    """Return the accuracies of the settings whose runs are finished at all seeds."""
    return {
        setting: [results[setting, seed] for seed in seeds]
        for setting in settings(method)
        if all((setting, seed) in results for seed in seeds)
    }


def selected(results: Results, method: str, seeds: Sequence[int]) -> Setting:
    """Return the setting with the best score; of equals the first, so the default before others."""
    own = finished(results, method, seeds)
    return max(own, key=lambda setting: score(own[setting]))


def tables(results: Results, methods: Iterable[str], seeds: Sequence[int]) -> list[str]:
    """Return two Markdown tables: every setting on validation images, and the selected ones on test images."""
    every = [
        "| method, weight | " + " | ".join(f"lr {lr:g}" for lr in RATES) + " |",
        "| --- |" + " ---: |" * len(RATES),
    ]
    chosen = ["| method | setting | natural | PGD-20 |", "| --- | --- | ---: | ---: |"]
    for method in methods:
        own = finished(results, method, seeds)
        if not own:
            continue
        best = selected(results, method, seeds)
        for value in GRID[method][1]:
            row = [Setting(method, value, lr) for lr in RATES]
            cells = (f"{score(own[each]):.2f}" if each in own else "–" for each in row)
            marked = (f"**{cell}**" if each == best else cell for each, cell in zip(row, cells, strict=True))
            every.append(f"| {method}, {GRID[method][0]} {value:g} | {' | '.join(marked)} |")
        for label, setting in {"default": settings(method)[0], "selected": best}.items():
            if setting in own:
                parts = (spread([each[f"test {name}"] for each in own[setting]]) for name in ("natural", "robust"))
                text = f"{label}: {GRID[method][0]} {setting.value:g}, lr {setting.lr:g}"
                chosen.append(f"| {method} | {text} | {' | '.join(parts)} |")
    return [*every, "", *chosen]


def spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=RECIPES, default="digits")
    parser.add_argument("--methods", nargs="+", choices=GRID, default=list(GRID))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=None, help="default: runs/tuning/DATA.jsonl")
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--show", action="store_true", help="print the tables of finished runs, and train nothing")
    args: Any = parser.parse_args(arguments)
    out = args.out or Path("runs/tuning") / f"{args.data}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    results = read_results(out, args.data)
    if out.exists() and not out.read_text(encoding="utf-8").endswith("\n"):  # the line of a killed command
        append(out, "\n")
    for setting, seed in () if args.show else plan(args.methods, args.seeds):
        if (setting, seed) in results:
            continue
        found = measure(setting.config(args.data, seed), args.data_dir)
        if found is None:
            break
        results[setting, seed] = found
        append(out, json.dumps({"data": args.data, **asdict(setting), "seed": seed, "accuracy": found}) + "\n")
    print("\n".join(tables(results, args.methods, args.seeds)))


if __name__ == "__main__":
    main()
