"""torch.compile around a forward, with a way back."""

import warnings
from collections.abc import Callable, Hashable
from typing import Any, cast
from weakref import ref

import torch
from rich.console import Console
from torch import Tensor, nn

from uiat.models.untouched import untouched


class Compiled:
    """Runs a forward compiled; where compiling fails, as it is from then on, and says so once.

    torch compiles anew for other shapes, modes and flags, and a backward only when it is first asked for, where nothing
    could catch it. So each kind of forward is tried first, with its backward, and leaves no trace of that.
    """

    def __init__(self, forward: Callable[..., Any], owner: nn.Module, what: str):
        self.eager, self.what = forward, what
        self._owner = ref(owner)
        self._proven: set[Hashable] = set()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own parts
            self._compiled: Callable[..., Any] | None = torch.compile(forward)

    def __call__(self, x: Tensor) -> Any:
        """Return what the forward returns."""
        if self._compiled is not None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._prove(x)
                    return self._compiled(x)
            except Exception as error:  # no compiler, an operation it does not know: anything may be raised
                self._give_up(error)
        return self.eager(x)

    def _prove(self, x: Tensor) -> None:
        """Compile forward and backward for an x of this kind, if none was seen yet."""
        owner = self._owner()
        assert owner is not None, "a compiled forward does not outlive its network"
        trained = [parameter for parameter in owner.parameters() if parameter.requires_grad]
        with_graph = torch.is_grad_enabled() and (x.requires_grad or bool(trained))
        lowered = torch.is_autocast_enabled(x.device.type) and torch.get_autocast_dtype(x.device.type)
        kind = (x.shape, x.dtype, x.device, x.requires_grad, with_graph, len(trained), owner.training, lowered)
        if kind in self._proven:
            return
        if with_graph:
            assert self._compiled is not None
            with untouched(owner):
                at = x.detach().clone().requires_grad_(x.requires_grad)
                found = self._compiled(at)
                ends = [end.sum() for end in (found if isinstance(found, tuple) else (found,)) if end.requires_grad]
                torch.autograd.grad(ends, [*trained, *([at] if x.requires_grad else [])], allow_unused=True)
        self._proven.add(kind)

    def _give_up(self, error: Exception) -> None:
        self._compiled = None
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        Console(stderr=True, highlight=False).print(
            f"{self.what} runs without torch.compile, which failed ({reason})", markup=False, soft_wrap=True
        )


class CompiledForward(Compiled):
    """A model's own forward, compiled, in whatever mode the model is in; the model's root hooks are not run.

    It does not keep the model alive.
    """

    def __init__(self, model: nn.Module, what: str = "the update of the weights"):
        reference = ref(model)

        def forward(x: Tensor) -> Tensor:
            return cast(nn.Module, reference()).forward(x)  # type: ignore[no-any-return]

        super().__init__(forward, model, what)
        self.eager = lambda x: cast(nn.Module, reference())(x)
        self.listeners: list[Callable[[Tensor], None]] = []
        """Callbacks run on the logits of each compiled forward; hooks of layers are not run in it."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = super().__call__(x)
        if self._compiled is not None:
            for listener in self.listeners:
                listener(logits)
        return logits


class CompiledNetwork(nn.Module):
    """A network that attacks run through where nothing can be folded: the compiled forward of the network itself."""

    def __init__(self, original: nn.Module, forward: CompiledForward):
        super().__init__()
        self._original, self._run = ref(original), forward

    def forward(self, x: Tensor) -> Tensor:
        """Return the original's logits."""
        return self._run(x)

    def refresh(self) -> None:
        """Do nothing: the weights are the original's."""

    @property
    def original(self) -> nn.Module:
        """The network itself."""
        model = self._original()
        assert model is not None, "a compiled forward does not outlive its network"
        return model
