"""Errors that are shown to the user without a traceback."""

import difflib
import errno
import re
import shlex
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in the input: the message says what is wrong, where, and what to do.

    The command line prints only the message and exits with code 2; in Python it is a `ValueError`.

    >>> Clock(epoch=0, step=0, epochs=30)
    Traceback (most recent call last):
        ...
    uiat.errors.UserError: the clock is in epoch 0 of 30: epochs count from 1 to the planned total.
    """


class Resumable(UserError):
    """An error that ends a run, which can be resumed from its folder: a full disk, or a loss that is not finite."""


class PeerLost(RuntimeError):
    """Another process of the run has ended; the run can be resumed from its last checkpoint."""


def quoted(name: object) -> str:
    """Return a name quoted for a shell, so that a suggested command can be copied."""
    return shlex.quote(str(name))


def unknown(kind: str, name: str, known: Iterable[str], *, others: Iterable[str] = (), advice: str = "") -> UserError:
    """Return the error for an unknown name, with the closest known one: `unknown("method", "uait", METHODS)`.

    `others` are also valid, but are not listed if no name is close; `advice` follows that list.
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


def first_line(error: BaseException) -> str:
    """Return the type and the first line of an error of another library, to quote in a message."""
    lines = str(error).strip().splitlines()
    text = lines[0].rstrip(".:") if lines else ""
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


PATHS = {errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EROFS}
"""Numbers of `OSError`s that are about the path they name."""
_CAUSES: tuple[tuple[tuple[type[Exception], ...], str, str], ...] = (
    (
        (MemoryError, RuntimeError),
        r"can't allocate memory|not enough memory|out of memory|std::bad_alloc",
        "there is not enough memory ({}): give a smaller network (--model.width), fewer or smaller images "
        "(--data.subset, --data.size), a smaller batch (--train.batch-size), or --train.micro-batch.",
    ),
    (
        (OverflowError, RuntimeError, ValueError),
        r"without overflow|[Oo]verflow when unpacking|too large to convert|too large to fit|Numerical result out",
        "a number is too large to compute with ({}): give a smaller one.",
    ),
    ((RuntimeError,), r"^Symlink loop from", "a path is a link to itself ({}): remove the link."),
)
"""Types of an error with a known cause, a pattern of its message, and the message for the user."""


def explain(error: Exception) -> UserError | None:
    """Return a `UserError` for an error of torch, Python or the system that the user can fix; `None`: it is a bug."""
    if isinstance(error, OSError) and error.errno in PATHS and error.filename is not None:
        return UserError(f"cannot use {error.filename}: {error.strerror}.")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
        return UserError(f"cannot write the output: {error.strerror}.")
    text = " ".join(str(error).split())
    for types, pattern, message in _CAUSES:
        if isinstance(error, types) and (isinstance(error, MemoryError) or re.search(pattern, text)):
            return UserError(message.format(text[:150] or type(error).__name__))
    return None
