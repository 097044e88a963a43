"""stdout and stderr of a command: any encoding, a reader that has gone, a disk that is full."""

import codecs
import os
import sys
from typing import TextIO

from uiat.escaping import printable


def prepare_streams() -> None:
    """Let stdout escape what its encoding lacks (`\\u03b5` for ε), as Python's stderr does, instead of failing."""
    encoding, reconfigure = getattr(sys.stdout, "encoding", None), getattr(sys.stdout, "reconfigure", None)
    if encoding and reconfigure is not None and codecs.lookup(encoding).name != "utf-8":
        reconfigure(errors="backslashreplace")


def flush_streams(code: int) -> int:
    """Write what is buffered, and return the exit code: `code`, or 2 where the output could not be written.

    A reader that has gone (`… | head`), or a terminal that was closed, is no error.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            _discard(stream)  # else Python would try again as it exits, and fail with code 120
            if not (code or isinstance(error, BrokenPipeError)):  # else an error has been reported
                code = print_error(f"cannot write the output: {error.strerror}.", 2)
    return code


def print_error(sentence: str, code: int) -> int:
    """Print an error message, if stderr takes it, and return the exit code."""
    try:
        print(f"uiat: {printable(sentence)}", file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)
    return code


def _discard(stream: TextIO) -> None:
    """Send what is left in a stream's buffer, and all that follows, to nowhere."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # not a file of the system
        pass
