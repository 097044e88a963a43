"""Robust stdout and stderr: encodings that lack characters, closed pipes, full disks."""

import codecs
import os
import sys
from typing import TextIO

from uiat.escaping import printable


def prepare_streams() -> None:
    """Make stdout escape characters that its encoding lacks (`\\u03b5` for ε), as stderr does, instead of failing."""
    encoding, reconfigure = getattr(sys.stdout, "encoding", None), getattr(sys.stdout, "reconfigure", None)
    if encoding and reconfigure is not None and codecs.lookup(encoding).name != "utf-8":
        reconfigure(errors="backslashreplace")


def flush_streams(code: int) -> int:
    """Flush both streams and return the exit code: `code`, or 2 if the output could not be written.

    A closed pipe (`… | head`) or terminal is not an error.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            _discard(stream)  # else Python flushes again at exit, and fails with code 120
            if not (code or isinstance(error, BrokenPipeError)):  # else an error has been reported already
                code = print_error(f"cannot write the output: {error.strerror}.", 2)
    return code


def print_error(message: str, code: int) -> int:
    """Print an error message, if stderr is writable, and return the exit code."""
    try:
        print(f"uiat: {printable(message)}", file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)
    return code


def _discard(stream: TextIO) -> None:
    """Redirect a stream to the null device, with what is left in its buffer."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):  # not a file of the operating system
        pass
