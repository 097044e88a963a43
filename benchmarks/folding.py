"""Effect of folding: robust accuracy of training with and without it, and of one network attacked in both ways.

    python benchmarks/folding.py [--seeds 8] [--epochs 10] [--method uiat] [--out runs/folding]

Trains on digits with and without the fast path, from the same seeds, and evaluates each pair on the 359 test images
with the unmodified network (`--exact`). The interval is over the paired differences of the seeds. A stopped benchmark
can be resumed.
"""

import json
import statistics
from pathlib import Path

import torch
import tyro

from uiat import data
from uiat.cli import main as uiat
from uiat.models.fast import speed_up
from uiat.runs.run_folder import RunFolder
from uiat.runs.weights import load_weights

ATTACKS = ("natural", "pgd-20")


def trained(method: str, seed: int, epochs: int, fast: bool, folder: Path) -> Path:
    """Return a finished run; train it if it is missing."""
    run = folder / f"{method}-s{seed}-{'fast' if fast else 'plain'}"
    command = [f"digits-resnet8-{method}", "--seed", str(seed), "--train.epochs", str(epochs), "--out", str(run)]
    command += [] if fast else ["--train.no-fast"]
    assert uiat(["train", *(["--resume", str(run)] if (run / "config.json").exists() else command)]) == 0
    return run


def accuracies(run: Path, *flags: str) -> list[float]:
    """Return accuracies in percent on the test images."""
    found = run / f"found{''.join(flags)}.json"
    if not found.exists():
        assert uiat(["evaluate", str(run), "--attacks", *ATTACKS, "--json", str(found), *flags]) == 0
    attacks = json.loads(found.read_text())["attacks"]
    return [100 * attacks[name]["accuracy"] for name in ATTACKS]


@torch.no_grad()
def logits_gap(run: Path) -> float:
    """Return how much folding changes the logits of test images, relative to the largest."""
    folder = RunFolder.open(run)
    config = folder.read_config()
    splits = data.load_splits(config.data)
    model = config.model.build(splits.spec).eval()
    load_weights(model, folder.best)
    x = splits.test.x.float() / 255
    fast = speed_up(model, x)
    assert fast.folds > 0
    logits = model(x)
    return float((fast.crafting_network()(x) - logits).abs().max() / logits.abs().max())


def line(name: str, differences: list[float]) -> str:
    """Write a mean difference with twice its standard error."""
    error = statistics.stdev(differences) / len(differences) ** 0.5
    mean, least, most = statistics.mean(differences), min(differences), max(differences)
    return f"| {name} | {mean:+.2f} ± {2 * error:.2f} | {least:+.2f} | {most:+.2f} |"


def main(seeds: int = 8, epochs: int = 10, method: str = "uiat", out: Path = Path("runs/folding")) -> None:
    pairs, both, gaps = [], [], []
    for seed in range(seeds):
        runs = [trained(method, seed, epochs, fast, out) for fast in (True, False)]
        fast, plain = (accuracies(run, "--exact") for run in runs)
        gaps.append(logits_gap(runs[0]))
        pairs.append([a - b for a, b in zip(fast, plain, strict=True)])
        both.append([a - b for a, b in zip(accuracies(runs[0]), fast, strict=True)])
    print(f"{method}, {epochs} epochs, {seeds} seeds; points of percent")
    print("| difference | mean ± 2 standard errors | least | most |\n| --- | --- | --- | --- |")
    for k, name in enumerate(ATTACKS):
        print(line(f"trained folded − plain, {name}", [pair[k] for pair in pairs]))
    for k, name in enumerate(ATTACKS):
        print(line(f"evaluated folded − plain, {name}", [pair[k] for pair in both]))
    print(f"Folding changes logits by at most {max(gaps):.1e} of the largest.")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
