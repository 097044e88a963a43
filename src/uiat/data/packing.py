"""From image files to a packed data set: look at all heads, choose the size, decode each file once."""

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from uiat.data.decode import Facts, look, pixels
from uiat.data.files import first_line
from uiat.data.images import LARGEST, check_size, stratified
from uiat.data.listing import Item, Listing
from uiat.data.packed import Manifest, cannot_pack, is_packed, read, read_manifest, write
from uiat.distributed import is_main
from uiat.errors import UserError
from uiat.progress import PipeSafeConsole, Ticker

_SPLIT_SEED = 0
_NAMED = 3
"""How many damaged files a sentence names."""


@dataclass(frozen=True)
class PackOptions:
    """What decides a packed data set, beside its files."""

    size: tuple[int, int] | None = None
    """(height, width); `None`: the size that most images have."""
    test_fraction: float = 0.2
    """How much is held out as test where the source has no test split."""


def default_validation(available: int) -> int:
    """Return how many training images are held out for validation unless one says so: a tenth, at most 1024."""
    return max(1, min(1024, available // 10))


def cached(listing: Listing, options: PackOptions, store: Path) -> Path:
    """Return the packed data set of a listing, made now unless it is in the store; an outdated one is removed."""
    name = Path(listing.source).name or "data"
    key = hashlib.sha256(repr((listing.source, options, listing.digest)).encode()).hexdigest()[:16]
    out = store / f"{name}-{key}"
    there = out.exists()
    if not (there and _intact(out)):
        if there:  # as it was before, so that what another process publishes meanwhile is left alone
            shutil.rmtree(out, ignore_errors=True)
        pack(listing, options, out)
        _remove_outdated(listing, options, out)
    return out


def _intact(out: Path) -> bool:
    try:
        return is_packed(out) and bool(read(out))
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


def pack(listing: Listing, options: PackOptions, out: Path) -> None:
    """Decode every image of a listing into a packed data set; nothing is left behind when that fails."""
    if not 0 < options.test_fraction < 1:
        raise UserError(f"the test fraction is {options.test_fraction}: give a number between 0 and 1.")
    if options.size is not None:
        check_size(*options.size)
    order, counts = _order(listing, options)
    facts = _look(listing, order)
    (height, width), notes = _size(listing, facts, options)
    grey = all(fact.grey for fact in facts)
    say = PipeSafeConsole(stderr=True, highlight=False, quiet=not is_main()).print
    for note in (*listing.notes, *notes):
        say(f"note: {note}", markup=False, soft_wrap=True)
    manifest = Manifest(
        listing.source,
        listing.digest,
        _plain(options),
        list(listing.classes),
        [1 if grey else 3, height, width],
        *counts,
        own_validation="validation" in listing.parts,
        own_test="test" in listing.parts,
        notes=[*listing.notes, *notes],
    )
    images = _decode(listing, order, (height, width), grey)
    try:
        write(out, manifest, images, (item.label for item in order), (item.place for item in order))
    except OSError as error:
        raise cannot_pack(out, error) from None


def _plain(options: PackOptions) -> dict[str, object]:
    return {"size": list(options.size) if options.size else None, "test_fraction": options.test_fraction}


def _order(listing: Listing, options: PackOptions) -> tuple[list[Item], tuple[int, int, int]]:
    """Return the images as training, validation and test images, and how many there are of each."""
    train, test = list(listing.parts["train"]), list(listing.parts.get("test", []))
    validation = list(listing.parts.get("validation", []))
    if not test:
        train, test = _draw(train, options.test_fraction)
    if not validation:
        train, validation = _draw(train, min(default_validation(len(train)), len(train)))
    there = Counter(item.label for item in train)
    lacking = [name for k, name in enumerate(listing.classes) if not there[k]]
    if lacking or not test:
        few = f"the class {lacking[0]} has" if lacking else "there are"
        raise UserError(
            f"{few} too few images in {listing.source} to draw test and validation images from: add some, "
            "or make the splits yourself as folders train, validation and test."
        )
    return train + validation + test, (len(train), len(validation), len(test))


def _draw(items: Sequence[Item], fraction_or_count: float) -> tuple[list[Item], list[Item]]:
    labels = torch.tensor([item.label for item in items], dtype=torch.int64)
    chosen, rest = stratified(labels, fraction_or_count, _SPLIT_SEED)
    return [items[k] for k in rest.tolist()], [items[k] for k in chosen.tolist()]


def _look(listing: Listing, order: Sequence[Item]) -> list[Facts]:
    facts: list[Facts] = []
    damaged: list[tuple[str, str]] = []
    with Ticker(len(order), f"looking at {len(order)} images") as ticker:
        for item in order:
            try:
                with listing.open(item.place) as file:
                    facts.append(look(file))
            except Exception as error:  # decoders raise nearly anything on damaged bytes
                damaged.append((item.place, first_line(error)))
            ticker.advance(1)
    _check(listing, damaged)
    return facts


def _decode(listing: Listing, order: Sequence[Item], size: tuple[int, int], grey: bool) -> Iterator[NDArray[np.uint8]]:
    """Yield the pixels of all images; damaged ones are named together, at the end."""
    damaged: list[tuple[str, str]] = []
    with Ticker(len(order), f"packing {len(order)} images") as ticker:
        for item in order:
            try:
                with listing.open(item.place) as file:
                    image = pixels(file, size, grey)
            except Exception as error:
                damaged.append((item.place, first_line(error)))
            else:
                yield image
            ticker.advance(1)
    _check(listing, damaged)


def _check(listing: Listing, damaged: list[tuple[str, str]]) -> None:
    if not damaged:
        return
    named = "; ".join(f"{place} ({why.removeprefix('ValueError: ')})" for place, why in damaged[:_NAMED])
    more = f"; and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
    count = "an image" if len(damaged) == 1 else f"{len(damaged)} images"
    raise UserError(f"{count} of {listing.source} cannot be read: {named}{more}: replace or remove, then try again.")


def _size(listing: Listing, facts: Sequence[Facts], options: PackOptions) -> tuple[tuple[int, int], list[str]]:
    """Return (height, width), and what to say of the choice."""
    sizes = Counter((fact.height, fact.width) for fact in facts)
    if options.size is not None:
        return options.size, []
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
        f"the images have {len(sizes)} sizes; all are resized to {height}×{width} (height×width), which {most} of "
        f"{len(facts)} have; give a size to choose another"
    ]
