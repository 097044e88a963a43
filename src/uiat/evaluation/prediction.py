"""Classification of picture files by a trained network, and adversarial examples of its predictions."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uiat.data import Splits
from uiat.data.image_folder import SUFFIXES, find_images
from uiat.data.images import Images, to_unit
from uiat.data.pixels import opened, to_pixels
from uiat.errors import UserError, first_line
from uiat.evaluation.subject import LoadedSubject, Subject, load_subject
from uiat.evaluation.suite import Plan, run_plans
from uiat.paths import suggest_path, user_path
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import read_export, trained_on

MOST_SAMPLES = 1 << 31
"""The largest number of training images that is believed of an export, which may be untrusted."""


@dataclass(frozen=True)
class RankedClass:
    """A class and its probability."""

    name: str
    index: int
    """Its place among the logits."""
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The prediction of a network on one picture."""

    file: Path
    error: str = ""
    """Why there is no prediction; empty if there is one."""
    ranking: tuple[RankedClass, ...] = ()
    """The most probable classes, in descending order."""
    adversarial: RankedClass | None = None
    """The class that the network assigns to an adversarial example; `None` if none was found, or looked for."""


def load_predictor(target: Path, options: Subject[Any]) -> LoadedSubject:
    """Load a network with its classes and image size; only for a weights file, its data is read.

    `train` of the result has the classes and the shape; its images are blank for a run or an export.
    """
    if not target.is_dir():
        return load_subject(target, options)
    if (export := read_export(target)) is not None:
        facts, spec = export.data, export.spec
    else:
        run = RunFolder.open(target)
        facts, spec = trained_on(run, run.read_config(), options.data_dir)
    count = min(max(1, spec.num_samples), MOST_SAMPLES)
    blank = torch.zeros((), dtype=torch.uint8).expand(count, *spec.shape)  # one byte of memory
    images = Images(blank, torch.zeros((), dtype=torch.int64).expand(count), tuple(facts["classes"]))
    return load_subject(target, options, Splits(images, images, images))


def list_pictures(places: Sequence[str]) -> list[Path]:
    """Return the given files, existing or not, and the images in the given folders and their sub-folders."""
    files: list[Path] = []
    for path in map(user_path, places):
        found = list(find_images(path)) if os.path.isdir(path) else [path]
        if not found:
            raise UserError(f"the folder {path} has no pictures ({', '.join(SUFFIXES)}): give another.")
        files += found
    return files


def predict_batch(
    subject: LoadedSubject, files: Sequence[Path], *, top: int, attack: Plan | None = None
) -> tuple[list[Prediction], list[str]]:
    """Classify a batch of picture files, resized and converted as the network's training images were.

    The attack, if given, looks for an adversarial example of each prediction: an image that is assigned to another
    class. Whether it is one is decided by the unmodified network, as the predictions are.

    Returns:
        A prediction for each file, and notices about the attack.
    """
    errors: dict[Path, str] = {}
    pixels = {file: found for file in files if (found := _read(file, subject.train.spec.shape, errors)) is not None}
    rankings: dict[Path, tuple[RankedClass, ...]] = {}
    turned: dict[Path, RankedClass] = {}
    notices: list[str] = []
    if pixels:
        x = torch.stack(list(pixels.values()))
        before = _probabilities(subject, to_unit(x))
        after = before
        if attack is not None:
            adversaries, notices = _attack(subject, x, before.argmax(dim=1), attack)
            after = _probabilities(subject, adversaries)
        for k, file in enumerate(pixels):
            if before[k].isnan().any():
                errors[file] = "the network's output for it is NaN"
                continue
            rankings[file] = _rank(subject, before[k], top)
            (best,) = _rank(subject, after[k], 1)
            if best.index != rankings[file][0].index:
                turned[file] = best
    return [Prediction(f, errors.get(f, ""), rankings.get(f, ()), turned.get(f)) for f in files], notices


def _read(file: Path, shape: Sequence[int], errors: dict[Path, str]) -> Tensor | None:
    """Return the pixels of a picture; `None`, with the reason in `errors`, if it cannot be read."""
    channels, height, width = shape
    try:
        with file.open("rb") as stream, opened(stream) as image:
            return to_pixels(image, (height, width), channels == 1)
    except FileNotFoundError:
        errors[file] = f"there is no such file; {suggest_path(file)}".rstrip("; ")
    except ModuleNotFoundError:  # Pillow is not installed
        raise
    except Exception as error:  # decoders raise nearly anything on damaged bytes
        errors[file] = getattr(error, "strerror", None) or first_line(error).removeprefix("ValueError: ")
    return None


def _probabilities(subject: LoadedSubject, x: Tensor) -> Tensor:
    with torch.no_grad():
        logits: Tensor = subject.model(x.to(subject.device))
    return logits.double().softmax(dim=1).cpu()


def _attack(subject: LoadedSubject, x: Tensor, y: Tensor, plan: Plan) -> tuple[Tensor, list[str]]:
    """Return x̂ for the pictures on which the attack succeeds, x for the others, and notices."""
    images = Images(x, y, subject.train.classes)
    result = run_plans(subject.fast, images, [plan], batch_size=len(x), device=subject.device, keep=True)
    (found,) = result.values()
    assert found.x_adv is not None  # since it is kept
    return found.x_adv, result.notices


def _rank(subject: LoadedSubject, probabilities: Tensor, top: int) -> tuple[RankedClass, ...]:
    values, places = probabilities.topk(min(top, len(probabilities)))
    names = subject.train.classes
    return tuple(RankedClass(names[k], k, p) for k, p in zip(places.tolist(), values.tolist(), strict=True))
