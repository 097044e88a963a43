"""`uiat predict TARGET IMAGE…`: classes and probabilities of picture files, and whether an attack changes the class."""

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Annotated, Any, Generic

import tyro

from uiat.attacks import PGD
from uiat.balls import Norm
from uiat.cli.options import check_counts
from uiat.cli.output_paths import check_file
from uiat.cli.subject_options import parse_subject_command
from uiat.config import ModelT
from uiat.config_json import encode
from uiat.errors import UserError
from uiat.escaping import one_line, printable
from uiat.evaluation.prediction import Prediction, RankedClass, list_pictures, load_predictor, predict_batch
from uiat.evaluation.subject import LoadedSubject, Subject
from uiat.evaluation.suite import Plan, plan_attack
from uiat.fields import check_radius, show_number
from uiat.io import json_text, write_output
from uiat.progress import PipeSafeConsole, Ticker, print_message
from uiat.runs.result_card import preprocessing
from uiat.runs.weights import DIGEST

STDOUT = "-"
"""The value of --json for stdout."""


@dataclass(frozen=True)
class PredictSubject(Subject[ModelT], Generic[ModelT]):
    """The network that classifies; flags on test images and their attacks do not apply."""

    n: Annotated[int | None, tyro.conf.Suppress] = None
    sample: Annotated[Any, tyro.conf.Suppress] = "first"
    eps: Annotated[float | None, tyro.conf.Suppress] = None
    step: Annotated[float | None, tyro.conf.Suppress] = None
    norm: Norm | None = None
    """Norm of --radius, linf or l2; by default that of the validation attack of a run, or linf for bare weights."""
    exact: bool = False
    """Attack the unmodified network; by default a copy with folded BatchNorm, which is faster. Predictions, also those
    of adversarial examples, are always those of the unmodified network."""
    batch_size: int = 256
    """Pictures per batch."""
    seed: int = 0
    """Seed of the random start of the attack."""


@dataclass(frozen=True)
class Predict(Generic[ModelT]):
    """Classify picture files, or all pictures in folders, prepared as the network's training images were."""

    subject: Annotated[PredictSubject[ModelT], tyro.conf.arg(name="")]
    """The network."""
    images: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")] = field(default=())
    """Picture files, and folders of pictures."""
    top: int = 3
    """Number of classes to show, the most probable first."""
    radius: float | None = None
    """Also look for an adversarial example of each prediction within this radius, such as 8/255."""
    attack: str = "pgd-20"
    """The attack within --radius, as in `uiat list attacks`."""
    json: str | None = None
    """A file for the predictions, or - for stdout, which then has nothing else."""


def main(args: list[str]) -> int:
    """Run the command."""
    target, options = parse_subject_command(
        Predict,
        args,
        "uiat predict",
        kind=PredictSubject,
        images="IMAGE…",
        examples=("runs/mine photo.jpg --radius 8/255", "weights.pt photos --model resnet18 --data cifar10"),
    )
    _check(target, args, options)
    subject = load_predictor(target, options.subject)
    attack = None if options.radius is None else _plan(subject, options.attack, options.radius)
    files = list_pictures(options.images)
    predictions, notices = _predict(subject, files, options, attack)
    if options.json == STDOUT:
        print(json_text(_card(subject, predictions, attack)), end="")
    elif options.json is not None:
        write_output(options.json, json_text(_card(subject, predictions, attack)))
    for notice in notices:
        print_message(f"note: {notice}")
    if failed := sum(bool(prediction.error) for prediction in predictions):
        raise UserError(f"{failed} of {len(files)} pictures have no prediction: each is named above with the reason.")
    return 0


def _check(target: Path, args: list[str], options: Predict[Any]) -> None:
    """Refuse wrong options before the network is loaded."""
    if not options.images:
        raise UserError("no pictures are given: uiat predict TARGET IMAGE…, files or folders.")
    if target.is_dir() and any(word.startswith(("--data=", "--data.")) or word == "--data" for word in args):
        raise UserError(f"{target} knows the classes and the size of images: omit --data, which is for weights files.")
    check_counts(options, top=1)
    if options.radius is not None and not 0 < options.radius < inf:
        raise UserError(f"--radius is {options.radius}: give a number above 0, such as 8/255.")
    if options.json != STDOUT:
        check_file(options.json, text=True)


def _plan(subject: LoadedSubject, name: str, radius: float) -> Plan:
    """Return the attack of this name within the radius, in the norm of the subject, with steps of ε/4."""
    check_radius("--radius", radius, subject.base.norm)
    if name == "natural":
        raise UserError("--attack is natural, which is none: give another, such as pgd-20.")
    base = PGD(eps=radius, step=None, steps=20, norm=subject.base.norm)
    return plan_attack(name, base, num_classes=len(subject.train.classes), seed=subject.options.seed)


def _predict(
    subject: LoadedSubject, files: list[Path], options: Predict[Any], attack: Plan | None
) -> tuple[list[Prediction], list[str]]:
    """Return all predictions, printed batch by batch, and notices about the attack."""
    predictions: list[Prediction] = []
    notices: dict[str, None] = {}
    results = PipeSafeConsole(quiet=options.json == STDOUT)
    size = options.subject.batch_size
    with Ticker(len(files), "classifying") as ticker:
        if results.is_terminal and ticker.console.is_terminal and not results.quiet:
            results = ticker.console  # one screen: lines are printed above the bar
        for start in range(0, len(files), size):
            batch, said = predict_batch(subject, files[start : start + size], top=options.top, attack=attack)
            for prediction in batch:
                console = ticker.console if prediction.error else results
                console.print_line(_line(prediction, attack))
            predictions += batch
            notices |= dict.fromkeys(said)
            ticker.advance(len(batch))
    return predictions, list(notices)


def _line(prediction: Prediction, attack: Plan | None) -> str:
    name = one_line(str(prediction.file))
    if prediction.error:
        return f"{name}: no prediction ({one_line(prediction.error)})"
    line = f"{name}: {', '.join(map(_shown, prediction.ranking))}"
    if attack is None:
        return line
    found = "none found" if prediction.adversarial is None else f"yes, {_shown(prediction.adversarial)}"
    return f"{line}; adversarial example within {show_number(attack.eps)}: {found}"


def _shown(ranked: RankedClass) -> str:
    return f"{one_line(ranked.name)} {ranked.probability:.2%}"


def _card(subject: LoadedSubject, predictions: list[Prediction], attack: Plan | None) -> dict[str, Any]:
    """Return the predictions for JSON, with what they depend on."""
    return {
        "schema": 1,
        "target": subject.target.name,
        "weights": subject.weights_file.name,
        DIGEST: subject.digest,
        "model": encode(subject.options.model),
        "preprocessing": preprocessing(subject.train.spec.shape),
        "classes": list(subject.train.classes),
        "attack": None if attack is None else {"name": attack.name, **attack.setting},
        "images": [_entry(prediction, attack is not None) for prediction in predictions],
    }


def _entry(prediction: Prediction, attacked: bool) -> dict[str, Any]:
    file = {"file": printable(str(prediction.file))}
    if prediction.error:
        return {**file, "error": prediction.error}
    entry: dict[str, Any] = {**file, "predictions": [_encoded(ranked) for ranked in prediction.ranking]}
    if attacked:
        entry["adversarial"] = prediction.adversarial and _encoded(prediction.adversarial)
    return entry


def _encoded(ranked: RankedClass) -> dict[str, Any]:
    return {"class": ranked.name, "index": ranked.index, "probability": ranked.probability}
