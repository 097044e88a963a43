"""Packing of custom images: they are decoded once, resized to one size, and divided into splits."""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch

from uiat.data.files import some
from uiat.data.images import LARGEST, SPLIT_SEED, check_image_size, default_validation, stratified
from uiat.data.packed import Manifest, is_packed, read_manifest, read_packed, write_packed
from uiat.data.pixels import RESAMPLING, to_pixels
from uiat.distributed import is_main
from uiat.errors import UserError, first_line
from uiat.io import reason

if TYPE_CHECKING:
    from PIL.Image import Image

_T = TypeVar("_T")
_GREY = ("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N")
"""The modes of grey images in Pillow."""
_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)
"""EXIF orientations that swap width and height."""
_NAMED = 3
"""How many damaged images an error message names."""


@dataclass(frozen=True)
class Listing:
    """The images of a source before they are decoded."""

    source: str
    """The absolute path of a folder, or FILE:callable."""
    digest: str
    """A digest that changes when the images do."""
    parts: Mapping[str, Sequence[str]]
    """The images of `train`, and of `validation` and `test` if the source has these splits; else they are drawn from
    `train`. Each image is named by a string that `open` takes."""
    open: Callable[[str], AbstractContextManager[tuple["Image", int]]]
    """Open an image and return it with its label."""
    classes: tuple[str, ...] = ()
    """Names of the classes; empty: the numbers up to the highest label."""
    notes: tuple[str, ...] = ()
    """Notes for the user on the source."""


@dataclass(frozen=True)
class PackOptions:
    """Options of packing."""

    size: tuple[int, int] | None = None
    """(height, width); `None`: the most frequent size."""
    test_fraction: float = 0.2
    """The share that is held out as test if the source has no test split."""


class ImageFacts(NamedTuple):
    """Size and kind of an image."""

    height: int
    width: int
    grey: bool


def image_facts(image: "Image") -> ImageFacts:
    """Return the size of an upright image, and whether it is grey; only the header of a file is read."""
    # A PNG may have its orientation after the pixels; it is then ignored here, for speed.
    exif = image.getexif() if image.format != "PNG" or "exif" in image.info else {}
    width, height = image.size[::-1] if exif.get(_ORIENTATION) in _TURNED else image.size
    return ImageFacts(height, width, image.mode in _GREY)


def cached(listing: Listing, options: PackOptions, store: Path, *, quiet: bool = False) -> Path:
    """Return the packed data set of a listing, packed now unless it is in the store; an outdated one is removed."""
    name = Path(listing.source).name.replace(":", "-") or "data"
    key = hashlib.sha256(repr((listing.source, options, listing.digest, RESAMPLING)).encode()).hexdigest()[:16]
    out = store / f"{name}-{key}"
    existed = out.exists()
    if not (existed and _intact(out)):
        if existed:  # not checked again: another process may have published it meanwhile
            shutil.rmtree(out, ignore_errors=True)
        pack_images(listing, options, out, quiet=quiet)
        _remove_outdated(listing, options, out)
    return out


def _intact(out: Path) -> bool:
    try:
        return is_packed(out) and bool(read_packed(out))
    except UserError:
        return False


def _remove_outdated(listing: Listing, options: PackOptions, out: Path) -> None:
    for other in out.parent.iterdir():
        if other == out or not is_packed(other):
            continue
        with suppress(UserError, OSError):
            manifest = read_manifest(other)
            if (manifest.source, manifest.options) == (listing.source, _plain(options)):
                shutil.rmtree(other)


def _plain(options: PackOptions) -> dict[str, object]:
    return {"size": list(options.size) if options.size else None, "test_fraction": options.test_fraction}


def pack_images(listing: Listing, options: PackOptions, out: Path, *, quiet: bool = False) -> None:
    """Decode all images of a listing into a packed data set; nothing is left behind if that fails.

    With `quiet`, notes are not printed; the manifest has them.
    """
    if not 0 < options.test_fraction < 1:
        raise UserError(f"--data.test-fraction is {options.test_fraction}: give a number between 0 and 1.")
    if options.size is not None:
        check_image_size(*options.size)
    places = [place for split in listing.parts.values() for place in split]
    seen = list(_read_all(listing, places, "inspecting", lambda image, label: (label, image_facts(image))))
    labels, facts = torch.tensor([label for label, _ in seen]), [fact for _, fact in seen]
    classes = listing.classes or tuple(str(k) for k in range(int(labels.max()) + 1))
    train, validation, test = _splits(listing, labels, classes, options)
    order = torch.cat([train, validation, test]).tolist()
    (height, width), notes = _size(listing, facts, options)
    grey = all(fact.grey for fact in facts)
    from uiat.progress import PipeSafeConsole  # imported late: rich is not needed to load a network

    say = PipeSafeConsole(stderr=True, highlight=False, quiet=quiet or not is_main()).print
    for note in (*listing.notes, *notes):
        say(f"note: {note}", markup=False, soft_wrap=True)
    manifest = Manifest(
        listing.source,
        listing.digest,
        _plain(options),
        list(classes),
        [1 if grey else 3, height, width],
        train=len(train),
        validation=len(validation),
        test=len(test),
        own_validation="validation" in listing.parts,
        own_test="test" in listing.parts,
        notes=[*listing.notes, *notes],
    )
    ordered = [places[k] for k in order]
    images = _read_all(listing, ordered, "packing", lambda image, _: to_pixels(image, (height, width), grey).numpy())
    try:
        write_packed(out, manifest, images, labels[order].tolist(), ordered)
    except OSError as error:
        raise UserError(
            f"cannot write the packed images to {out} ({reason(error)}): "
            "make room, or name another folder (--data-dir, or --out of `uiat data pack`)."
        ) from None


def _read_all(
    listing: Listing, places: Sequence[str], action: str, read_one: Callable[["Image", int], _T]
) -> Iterator[_T]:
    """Yield the result of `read_one` for each image and label; damaged images raise one error at the end."""
    from uiat.progress import Ticker

    damaged: list[tuple[str, str]] = []
    with Ticker(len(places), f"{action} {len(places)} images") as ticker:
        for place in places:
            try:
                with listing.open(place) as (image, label):
                    result = read_one(image, label)
            except Exception as error:  # decoders raise nearly anything on damaged bytes
                damaged.append((place, first_line(error)))
            else:
                yield result
            ticker.advance(1)
    if damaged:
        named = some([f"{place} ({why.removeprefix('ValueError: ')})" for place, why in damaged], _NAMED, "; ")
        count = "an image" if len(damaged) == 1 else f"{len(damaged)} images"
        raise UserError(f"{count} of {listing.source} cannot be read: {named}: replace or remove, then try again.")


def _splits(
    listing: Listing, labels: torch.Tensor, classes: Sequence[str], options: PackOptions
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the indices of training, validation and test images; missing splits are drawn from training."""
    lengths = [len(split) for split in listing.parts.values()]
    given = dict(zip(listing.parts, torch.arange(len(labels)).split(lengths), strict=True))
    train, validation, test = given["train"], given.get("validation"), given.get("test")
    before = set(labels[train].tolist())
    if test is None:
        chosen, rest = stratified(labels[train], options.test_fraction, SPLIT_SEED)
        train, test = train[rest], train[chosen]
    if validation is None:
        chosen, rest = stratified(labels[train], min(default_validation(len(train)), len(train)), SPLIT_SEED)
        train, validation = train[rest], train[chosen]
    lost = sorted(before - set(labels[train].tolist()))
    if lost or not len(test):
        few = f"the class {classes[lost[0]]} has" if lost else "there are"
        raise UserError(
            f"{few} too few images in {listing.source} to draw test and validation images from: add some, "
            "or provide the splits as folders train, validation and test."
        )
    return train, validation, test


def _size(listing: Listing, facts: Sequence[ImageFacts], options: PackOptions) -> tuple[tuple[int, int], list[str]]:
    """Return (height, width) and notes on the choice."""
    if options.size is not None:
        return options.size, []
    sizes = Counter((fact.height, fact.width) for fact in facts)
    (height, width), most = max(sizes.items(), key=lambda entry: (entry[1], entry[0]))
    if max(height, width) > LARGEST:
        raise UserError(
            f"most images of {listing.source} have {height}×{width} pixels, more than {LARGEST} a side: "
            f"choose a size, such as --data.size {round(64 * height / max(height, width))} "
            f"{round(64 * width / max(height, width))}."
        )
    if len(sizes) == 1:
        return (height, width), []
    return (height, width), [
        f"the images have {len(sizes)} sizes; all are resized to {height}×{width} (height×width), that of {most} of "
        f"{len(facts)}; --data.size sets another"
    ]
