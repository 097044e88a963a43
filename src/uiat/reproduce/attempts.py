"""Things that are tried one by one: what fails is said in one line, and the rest goes on."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from uiat.errors import UserError


class Stopped(Exception):
    """Somebody asked for a stop; all is saved."""


T = TypeVar("T")


def in_words(error: Exception) -> str:
    """Return an error as one line: a sentence for people as it is, anything else with its kind."""
    words = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return " ".join(words.split())


@dataclass
class Attempts:
    """Keeps what failed; where an error is no sentence for people, its traceback goes to a file."""

    log: Path
    say: Callable[[str], None]
    failed: list[str] = field(default_factory=list)

    def __call__(self, what: str, act: Callable[[], T]) -> T | None:
        """Return what `act` returns, or `None` if it fails."""
        try:
            return act()
        except Stopped:
            raise
        except Exception as error:
            self.failed.append(what)
            self.say(f"failed: {what}: {in_words(error)}")
            if not isinstance(error, UserError):
                self._keep_traceback(what)
            return None

    def _keep_traceback(self, what: str) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{what}\n{traceback.format_exc()}\n")
