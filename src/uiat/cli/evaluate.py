"""`uiat evaluate RUN`: accuracy of a run's weights on its test set, natural and attacked."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from uiat import data
from uiat.attacks import PGD
from uiat.cli.numbers import REGISTRY, show_number
from uiat.engine.files import write_json
from uiat.engine.run import RunFolder, read_json
from uiat.engine.setup import build_model, pick_device
from uiat.engine.weights import load_weights
from uiat.errors import UserError
from uiat.evaluation.accuracy import Accuracy
from uiat.evaluation.card import environment
from uiat.evaluation.suite import run_suite


@dataclass(frozen=True)
class Evaluate:
    """Measure a trained network on its test set."""

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder."""
    weights: Literal["best", "last"] = "best"
    """The weights of the best epoch on the validation split, or of the last epoch."""
    attacks: tuple[str, ...] = ("natural", "pgd-20")
    """What to measure: natural, fgsm, pgd-K."""
    eps: float | None = None
    """Radius; else the one of the run's validation."""
    step: float | None = None
    """Length of a step; else the one of the run's validation (ε/4 unless it was set)."""
    n: int | None = None
    """How many test images, from the first; else all."""
    batch_size: int = 256
    """Images attacked at a time; random starts depend on it."""
    seed: int = 0
    """Decides the random starts."""
    json: str | None = None
    """Write the result there too; it is always added to the run's result.json."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto is the GPU if there is one."""
    data_dir: str | None = None
    """Where the data set is; else $UIAT_DATA, else a cache folder."""


def main(args: list[str]) -> int:
    """Run the command."""
    with REGISTRY:
        options = tyro.cli(Evaluate, args=args, prog="uiat evaluate", description=Evaluate.__doc__)
    run = RunFolder.open(options.run)
    result, found, base = evaluate(run, options)
    _save(run, options, result)
    _show(run, options, base, found)
    return 0


def evaluate(run: RunFolder, options: Evaluate) -> tuple[dict[str, Any], dict[str, Accuracy], PGD]:
    """Return the evaluation for the card, the verdicts, and the threat model."""
    config = run.read_config()
    base = config.validate.attack(config.method)
    if options.eps is not None:
        base = replace(base, eps=options.eps)
    if options.step is not None:
        base = replace(base, step=options.step)
    device = pick_device(options.device)
    splits = data.load(config.data, options.data_dir)
    images = splits.test
    if options.n is not None:
        if not 0 < options.n <= len(images):
            raise UserError(f"--n is {options.n}, but the test set has {len(images)} images.")
        images = images.take(torch.arange(options.n))
    model = build_model(config, splits.spec, device)
    load_weights(model, run.best if options.weights == "best" else run.last)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("evaluating", total=len(images) * len(options.attacks))
        found = run_suite(
            model,
            images,
            options.attacks,
            base,
            batch_size=options.batch_size,
            seed=options.seed,
            device=device,
            advance=lambda done: progress.advance(task, done),
        )
    setting = {
        "weights": options.weights,
        "split": "test",
        "norm": base.norm,
        "eps": base.eps,
        "step": base.eps / 4 if base.step is None else base.step,
        "batch_size": options.batch_size,
        "seed": options.seed,
    }
    attacks = {name: accuracy.to_json() for name, accuracy in found.items()}
    return {**setting, "attacks": attacks, "environment": environment(device)}, found, base


def _save(run: RunFolder, options: Evaluate, result: dict[str, Any]) -> None:
    """Add the result to the run's card, under its setting, and write it where it was asked for."""
    card: dict[str, Any] = read_json(run.result) if run.result.exists() else {"schema": 1, "evaluations": {}}
    key = f"{options.weights}/{result['norm']}/{show_number(result['eps'])}"
    before = card.setdefault("evaluations", {}).get(key, {})
    card["evaluations"][key] = {**result, "attacks": {**before.get("attacks", {}), **result["attacks"]}}
    write_json(run.result, card)
    if options.json:
        try:
            write_json(Path(options.json), result)
        except OSError as error:
            raise UserError(f"cannot write {options.json}: {error.strerror}; choose another --json.") from None


def _show(run: RunFolder, options: Evaluate, base: PGD, found: dict[str, Accuracy]) -> None:
    sign = "L∞" if base.norm == "linf" else "L2"
    table = Table(title=f"{run.path}: {options.weights} weights, {sign} ε = {show_number(base.eps)}")
    for heading in ("attack", "accuracy", "95 % interval", "images", "seconds"):
        table.add_column(heading, justify="left" if heading == "attack" else "right")
    for name, accuracy in found.items():
        row = accuracy.to_json()
        low, high = row["interval95"]
        table.add_row(name, f"{row['accuracy']:.2%}", f"{low:.2%} – {high:.2%}", str(row["n"]), f"{row['seconds']:.1f}")
    Console().print(table)
