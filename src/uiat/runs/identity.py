"""What a run's data was, so that it does not go on, and is not measured, on other data of the same name.

The table of p and the order of samples go by a sample's place, z and the logits by the place of a class: in a folder
that changed, both would be silently wrong.
"""

import hashlib
from typing import Any

import torch

from uiat.config import AnyConfig
from uiat.data import Splits
from uiat.data.files import user_path
from uiat.data.images import Images
from uiat.data.own import is_callable
from uiat.distributed import is_main, wait
from uiat.errors import UserError
from uiat.io import write_json
from uiat.runs.folder import RunFolder, read_json
from uiat.runs.places import known_places, places

_PROBES = 64
"""Images of each split whose pixels are part of the digest: all of them may be more than the memory holds."""


def keep_identity(run: RunFolder, splits: Splits, config: AnyConfig, moved: str = "") -> None:
    """Keep in data.json what the data is and where it lies, unless that is there already; all processes take part.

    `moved` is the place that the data has now, where it is another.
    """
    if is_main() and not run.data.exists():
        with run.lock():
            write_json(run.data, {**identity(splits), "places": places(config)})
    elif is_main() and moved:
        place = moved if is_callable(moved) else str(user_path(moved).absolute())
        kept = {**known_places(run), "name": place}
        with run.lock():
            write_json(run.data, {**_known(run), "places": kept})
    wait()


def identity(splits: Splits) -> dict[str, Any]:
    """Return the classes, the shape, and a count and a digest of each split."""
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {
        "schema": 1,
        "classes": list(splits.train.classes),
        "shape": list(splits.spec.shape),
        **{name: {"images": len(part), "digest": _digest(part)} for name, part in parts.items()},
    }


def _digest(images: Images) -> str:
    probes = torch.linspace(0, len(images) - 1, min(_PROBES, len(images))).long()
    digest = hashlib.sha256(images.y.cpu().numpy().tobytes())
    digest.update(images.x[probes].cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def is_own_data(run: RunFolder, splits: Splits) -> bool:
    """Whether data is, split by split, that of the run."""
    known, now = _known(run), identity(splits)
    return all(known.get(part) == value for part, value in now.items())


def check_same(run: RunFolder, splits: Splits, name: str) -> None:
    """Refuse to go on with a run whose training or validation images are not those that it was begun with."""
    known, now = _known(run), identity(splits)
    check_classes(run, splits.train.classes, name)
    for part in ("shape", "train", "validation"):
        if known.get(part, now[part]) != now[part]:
            what = "images have another shape" if part == "shape" else f"{part} images are others"
            raise UserError(
                f"the data {name} changed since {run.path} was begun (its {what}): bring it back, or begin a new run."
            )


def check_classes(run: RunFolder, classes: tuple[str, ...], name: str) -> None:
    """Refuse data whose classes are not the run's, in its order; classes that are only numbered go by their place."""
    trained = _known(run).get("classes")
    if not isinstance(trained, list) or list(classes) == trained or _numbered(trained) or _numbered(classes):
        return
    place = next((k for k, (a, b) in enumerate(zip(trained, classes, strict=False)) if a != b), -1)
    differ = f"{len(trained)} and {len(classes)} of them"
    if place >= 0:
        differ = f"number {place} is {trained[place]!r} and {classes[place]!r}"
    raise UserError(
        f"the classes of {run.path} and of {name} differ ({differ}): "
        "give data with the classes of the run, in its order."
    )


def check_channels(run: RunFolder, channels: int, name: str) -> None:
    """Refuse images in colour for a network of grey ones, and the other way round."""
    shape = _known(run).get("shape")
    if isinstance(shape, list) and shape and shape[0] != channels:
        raise UserError(
            f"{run.path} was trained on images of {shape[0]} channels, but those of {name} have {channels}."
        )


def _numbered(names: list[str] | tuple[str, ...]) -> bool:
    return list(names) == [str(k) for k in range(len(names))]


def _known(run: RunFolder) -> dict[str, Any]:
    """Return what is known of a run's data; nothing of a run that an earlier version began."""
    found = read_json(run.data) if run.data.exists() else {}
    return found if isinstance(found, dict) else {}
