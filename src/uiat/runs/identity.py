"""Dataset fingerprint and location of a run, so that it is neither resumed nor evaluated on other data by mistake.

The table of p and the order of samples refer to samples by index, z and the logits to classes by index: in a folder
that changed, both would be silently wrong. Relative paths may refer to another folder than the current one.
"""

import os
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from uiat.config import AnyConfig
from uiat.data import SOURCES, Splits, custom
from uiat.data.custom import is_callable
from uiat.data.data_config import DataConfig
from uiat.data.images import Images
from uiat.distributed import is_main, wait
from uiat.errors import UserError
from uiat.io import write_json
from uiat.models import Imported, ModelConfig
from uiat.paths import user_path
from uiat.plugins import unnamed
from uiat.runs.run_folder import RunFolder


def keep_identity(run: RunFolder, splits: Splits, config: AnyConfig, moved: str = "") -> None:
    """Write fingerprint and location of the data to data.json, unless it exists; called by all processes.

    `moved` is the new location of data that has moved, which is updated in data.json.
    """
    if is_main() and not run.data.exists():
        with run.lock():
            write_json(run.data, {**identity(splits), "places": source_paths(config)})
    elif is_main() and moved:
        place = moved if is_callable(moved) else str(user_path(moved).absolute())
        kept = {**known_places(run), "name": place}
        with run.lock():
            write_json(run.data, {**run.read_data(), "places": kept})
    wait()


def identity(splits: Splits) -> dict[str, Any]:
    """Return the fingerprint of the data: its classes, the shape of an image, and size and digest of each split."""
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    generated = splits.generated
    return {
        "schema": 1,
        "classes": list(splits.train.classes),
        "shape": list(splits.spec.shape),
        **{name: _part(images) for name, images in parts.items()},
        "generated": None if generated is None else _part(generated),
    }


def _part(images: Images) -> dict[str, Any]:
    return {"images": len(images), "digest": images.digest()}


def is_run_data(run: RunFolder, splits: Splits) -> bool:
    """Whether data has the fingerprint of the run's data, except for generated images."""
    known, now = run.read_data(), identity(splits)
    return all(known.get(part) == value for part, value in now.items() if part != "generated")


def check_same(place: Path, known: dict[str, Any], now: dict[str, Any], name: str) -> None:
    """Raise an error if the training, generated or validation images of the run in `place` have changed.

    `known` and `now` are fingerprints; parts that an earlier version did not write are not compared.
    """
    check_classes(place, known, tuple(now["classes"]), name)
    for part in ("shape", "train", "generated", "validation"):
        if known.get(part, now[part]) != now[part]:
            difference = "the shape of its images" if part == "shape" else f"its {part} images"
            raise UserError(
                f"the data {name} has changed since {place} was created ({difference}): restore it, or start a new run."
            )


def check_classes(place: Path | str, trained: dict[str, Any], classes: tuple[str, ...], name: str) -> None:
    """Raise an error unless data has the classes that the network in `place` was trained on, in the same order.

    Where the classes have no names but numbers, they are not compared.
    """
    known = trained.get("classes")
    if not isinstance(known, list) or list(classes) == known or _numbered(known) or _numbered(classes):
        return
    first = next((k for k, (a, b) in enumerate(zip(known, classes, strict=False)) if a != b), -1)
    differ = f"{len(known)} and {len(classes)} of them"
    if first >= 0:
        differ = f"number {first} is {known[first]!r} and {classes[first]!r}"
    raise UserError(
        f"the classes of {place} and of {name} differ ({differ}): give data with the same classes, in the same order."
    )


def check_channels(place: Path, trained: dict[str, Any], channels: int, name: str) -> None:
    """Raise an error if the network in `place` was trained on images with another number of channels."""
    shape = trained.get("shape")
    if isinstance(shape, list) and shape and shape[0] != channels:
        raise UserError(f"{place} was trained on images with {shape[0]} channels, but {name} has {channels}.")


def _numbered(names: list[str] | tuple[str, ...]) -> bool:
    return list(names) == [str(k) for k in range(len(names))]


def known_facts(run: RunFolder, config: AnyConfig) -> dict[str, Any]:
    """Return the description of a run's data in data.json, as `data_facts` does; empty without data.json."""
    known = run.read_data()
    try:
        counts = {part: known[part]["images"] for part in ("train", "validation", "test")}
        return {"name": config.data.name, "classes": known["classes"], "shape": known["shape"], **counts}
    except (KeyError, TypeError):
        return {}


def choose_data(described: str, given: str | None, place: Path) -> str:
    """Return the data set that the user gave, else the `described` one; code is imported only if the user names it."""
    if given is not None:
        return given
    if described not in SOURCES and is_callable(described):
        raise unnamed(f"the data of {place} is {described[:100]!r}", ("--data", described[:100]))
    return described


def source_paths(config: AnyConfig) -> dict[str, str]:
    """Return the absolute paths of a configuration's custom data, and of the file that defines a custom network."""
    data = config.data
    given = {"name": data.name, "test": data.test, "generated": data.generated.file}
    paths = {
        part: str(user_path(path).absolute())
        for part, path in given.items()
        if path not in SOURCES and custom.is_path(path) and os.path.exists(user_path(path))
    }
    if isinstance(config.model, Imported):
        module = sys.modules.get(config.model.target.partition(":")[0])
        paths["model"] = str(getattr(module, "__file__", None) or Path.cwd())
    return paths


def find_data(run: RunFolder, data: DataConfig, named: Collection[str] = ()) -> DataConfig:
    """Return the configuration of the data with paths that exist: as given, else as recorded in data.json.

    A test file that is in neither place is looked for beside the data. A `module:callable` of data.json is used only
    if the user has `named` it.
    """
    config, known = run.read_config().data, known_places(run)
    if data.name == config.name:
        data = replace(data, name=_find(run, data.name, [known.get("name")], named))
    if data.test and data.test == config.test:
        beside = user_path(data.name).with_name(Path(data.test).name)
        data = replace(data, test=_find(run, data.test, [known.get("test"), str(beside)]))
    kept, file = known.get("generated"), user_path(data.generated.file)
    if kept is not None and data.generated == config.generated and not os.path.exists(file) and os.path.exists(kept):
        data = replace(data, generated=replace(data.generated, file=kept))
    return data


def _find(run: RunFolder, given: str, others: list[str | None], named: Collection[str] = ()) -> str:
    if is_callable(given):
        return given
    places = [given, *filter(None, others)]
    existing = next((place for place in places if place in named or os.path.exists(user_path(place))), None)
    if existing is None and others[0] is not None:
        choose_data(others[0], None, run.path)
    if existing is None and others[0] is not None:
        raise UserError(
            f"the data of {run.path} is neither at {' nor at '.join(dict.fromkeys(places))}: "
            "give its location with --data PATH."
        )
    return existing or given


def find_network(run: RunFolder, model: ModelConfig) -> None:
    """Import a custom network; the error says where it was when the run was created."""
    if not isinstance(model, Imported):
        return
    try:
        model.find()
    except UserError as error:
        kept = known_places(run).get("model")
        if kept is None:
            raise
        raise UserError(f"{str(error).rstrip('.')}; when {run.path} was created, it was {kept}.") from None


def known_places(run: RunFolder) -> dict[str, str]:
    """Return the paths recorded in data.json; empty if an earlier version created the run."""
    places: dict[str, str] = run.read_data().get("places", {})
    return places
