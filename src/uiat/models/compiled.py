"""torch.compile with a fallback to the uncompiled network."""

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from uiat.models.probe import untouched
from uiat.progress import print_message


class Compiled(nn.Module):
    """Runs a network's forward compiled; if compiling fails, prints a message and runs the network itself from then on.

    torch recompiles for other shapes, modes and flags, and compiles a backward at its first use, where a failure could
    not be caught. Each new kind of call is therefore tried first, with its backward and without side effects. Hooks of
    the network run only after compiling has failed.
    """

    def __init__(self, network: nn.Module, what: str):
        super().__init__()
        self.what = what
        self._network = (network,)  # in a tuple, it is no submodule
        self._tried: set[Hashable] = set()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about its own parts
            self._compiled: Callable[[Tensor], Any] | None = torch.compile(network.forward)

    def forward(self, x: Tensor) -> Any:
        """Return the output of the network."""
        if self._compiled is not None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._try(self._compiled, x)
                    return self._compiled(x)
            except Exception as error:  # no compiler, an unsupported operation: any exception is possible
                self._give_up(error)
        return self._network[0](x)

    def _try(self, compiled: Callable[[Tensor], Any], x: Tensor) -> None:
        """Compile forward and backward at the first x of its kind."""
        (network,) = self._network
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        with_graph = torch.is_grad_enabled() and (x.requires_grad or bool(trained))
        autocast_dtype = torch.is_autocast_enabled(x.device.type) and torch.get_autocast_dtype(x.device.type)
        kind = (x.shape, x.dtype, x.device, x.requires_grad, with_graph, len(trained), network.training, autocast_dtype)
        if with_graph and kind not in self._tried:
            with untouched(network):
                at = x.detach().clone().requires_grad_(x.requires_grad)
                output = compiled(at)
                ends = [end.sum() for end in (output if isinstance(output, tuple) else (output,)) if end.requires_grad]
                torch.autograd.grad(ends, [*trained, *([at] if x.requires_grad else [])], allow_unused=True)
        self._tried.add(kind)

    def _give_up(self, error: Exception) -> None:
        self._compiled = None
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        print_message(f"{self.what} runs without torch.compile, which failed ({reason})")
