"""Errors shown without a traceback: one clear sentence each."""

import difflib
import shlex
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in the input: the message says what is wrong, where, and what to do.

    The command line prints the message alone and exits with code 2; in one's own code it is a `ValueError`.

    >>> Clock(epoch=0, step=0, epochs=30)
    Traceback (most recent call last):
        ...
    uiat.errors.UserError: the clock is in epoch 0 of 30: epochs count from 1 to the planned total.
    """


class Resumable(UserError):
    """What ends a run that can go on in its folder as it is: a full disk, or a loss that is not finite."""


class PeerLost(RuntimeError):
    """Another process of the run is gone: nobody's mistake, and the run can go on from its last checkpoint."""


def quoted(name: object) -> str:
    """Return a name as a word of a shell: every command that a message suggests can be copied as it stands."""
    return shlex.quote(str(name))


def unknown(kind: str, name: str, known: Iterable[str], *, others: Iterable[str] = (), advice: str = "") -> UserError:
    """Name the closest known word for an unknown one: `unknown("method", "uait", METHODS)`.

    `others` are as good but not listed where none is close; `advice` follows that list.
    """
    names = sorted(known)
    candidates = [*names, *sorted(others)]
    close = difflib.get_close_matches(name.lower(), [n.lower() for n in candidates], n=1, cutoff=0.5)
    closest = [n for n in candidates if n.lower() in close]
    if closest:
        hint = f"did you mean {closest[0]!r}?"
    elif len(names) <= 80:
        hint = "known are " + ", ".join(names) + (f"; {advice}" if advice else ".")
    else:
        hint = "see `uiat list`."
    return UserError(f"unknown {kind} {name!r}: {hint}")
