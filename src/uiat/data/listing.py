"""Labelled image files before they are read: which there are, of which class, in which split."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple


class Item(NamedTuple):
    """An image that has not been read yet."""

    place: str
    """Where it is within its source, for `Listing.open` and for people."""
    label: int


@dataclass(frozen=True)
class Listing:
    """The images of a source."""

    source: str
    """Where the source lies, as an absolute path."""
    classes: tuple[str, ...]
    parts: Mapping[str, Sequence[Item]]
    """`train`, and `validation` and `test` where the source has them; what it lacks is drawn from `train`."""
    open: Callable[[str], IO[bytes]]
    """Open the file of an item's place."""
    digest: str
    """Changes when a file is added, removed, renamed or written."""
    notes: tuple[str, ...] = ()
    """What a person should know of the source."""


def stamp(entries: Iterable[tuple[str, int, int]]) -> str:
    """Return the digest of (place, bytes, time of the last change in ns) of all files."""
    digest = hashlib.sha256()
    for entry in sorted(entries):
        digest.update(repr(entry).encode())
    return digest.hexdigest()
