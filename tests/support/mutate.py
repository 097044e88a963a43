"""Break the source on purpose, to see that a test notices."""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Mutation:
    """One edit of one function: the text `old` becomes `new`."""

    function: Callable[..., Any]
    old: str
    new: str

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        """Compile the edited source and put it in place of the function, wherever it is imported."""
        source = textwrap.dedent(inspect.getsource(self.function))
        assert source.count(self.old) == 1, f"{self.old!r} stands {source.count(self.old)} times in {self.function}"
        module = inspect.getmodule(self.function)
        assert module is not None
        scope: dict[str, Any] = {}
        exec(compile(source.replace(self.old, self.new), f"mutated {module.__name__}", "exec"), vars(module), scope)
        mutated = scope[self.function.__name__]
        owner, _, _ = self.function.__qualname__.rpartition(".")
        if owner:
            patch.setattr(getattr(module, owner), self.function.__name__, mutated)
            return
        for user in _importers(self.function):
            patch.setattr(user, self.function.__name__, mutated)


def _importers(function: Callable[..., Any]) -> list[Any]:
    import sys

    return [
        module
        for name, module in sys.modules.items()
        if name.split(".")[0] == "uiat" and getattr(module, function.__name__, None) is function
    ]
