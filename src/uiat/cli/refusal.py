"""A mistake that one of several processes meets: it is said once, and torchrun does not try the same again."""

import os
import sys
from pathlib import Path

from uiat.engine.signals import STOP_FILE
from uiat.errors import Resumable, UserError


def refusal_file(stop_file: str) -> Path:
    """Return the file, beside the one that asks for a stop, which tells that the run cannot go on as it is."""
    return Path(f"{stop_file}.refused")


def refused() -> bool:
    """Whether a process of this launch has met a mistake that a person must mend, or the launcher is gone."""
    stop_file = os.environ.get(STOP_FILE)
    return stop_file is not None and (refusal_file(stop_file).exists() or not Path(stop_file).parent.exists())


def refuse(error: UserError) -> int:
    """Say what is wrong and return the exit code.

    Under `uiat train --processes` the first process leaves the sentence for the launcher, which says it and ends with
    code 2; the processes end with 0, because torchrun takes any other code for a death and starts them again. Under
    torchrun alone the first process of each machine speaks: machines may differ in their files.
    """
    stop_file = os.environ.get(STOP_FILE)
    if stop_file is None or "LOCAL_RANK" not in os.environ:  # no launch, or a worker of `uiat reproduce`
        if os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"uiat: {error}", file=sys.stderr)
        return 2
    try:
        with refusal_file(stop_file).open("x", encoding="utf-8") as file:
            file.write(f"{'resumable' if isinstance(error, Resumable) else ''}\n{error}")
    except (FileExistsError, FileNotFoundError):  # another process has said it, or the launcher is gone
        pass
    except OSError:  # a full disk
        print(f"uiat: {error}", file=sys.stderr)
    return 0


def raise_refusal(stop_file: Path) -> None:
    """Raise the mistake that a process of a launch has met, if one has."""
    file = refusal_file(str(stop_file))
    if file.exists():
        kind, _, sentence = file.read_text(encoding="utf-8").partition("\n")
        if not sentence:
            raise Resumable("a process of this run could not go on, and could not write why: its words are above.")
        raise (Resumable if kind else UserError)(sentence)
