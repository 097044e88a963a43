"""torch.compile around a forward, with a way back."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn


class Compiled:
    """Runs a forward compiled; where compiling fails, as it is from then on, and says so once."""

    def __init__(self, forward: Callable[..., Any], what: str):
        self.forward, self.what = forward, what
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own parts
            self._compiled: Callable[..., Any] | None = torch.compile(forward)
        self._proven = False

    def __call__(self, x: Tensor) -> Any:
        """Return what the forward returns."""
        if self._compiled is None:
            return self.forward(x)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self._compiled(x)
        except Exception as error:  # no compiler, an operation it does not know: anything may be raised
            if self._proven:
                raise
            self._compiled = None
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            Console(stderr=True, highlight=False).print(
                f"{self.what} runs without torch.compile, which failed ({reason})", markup=False, soft_wrap=True
            )
            return self.forward(x)
        self._proven = True
        return found


class CompiledForward(Compiled):
    """A model's own forward, compiled, in whatever mode the model is in; the model's root hooks are not run."""

    def __init__(self, model: nn.Module):
        super().__init__(model.forward, "the update of the weights")
        self.listeners: list[Callable[[Tensor], None]] = []
        """Whoever wants to see the logits of each compiled forward; hooks of layers are not run in it."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = super().__call__(x)
        if self._compiled is not None:
            for listener in self.listeners:
                listener(logits)
        return logits
