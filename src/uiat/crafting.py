"""The state a network is in while examples are crafted against it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, cast
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Crafting = Literal["eval", "train", "batch"]
"""BatchNorm while crafting: `eval` uses running statistics; `train` leaves the network in its training mode, so that
batch statistics are used and the running ones move, as in the single-step methods' own code; `batch` uses batch
statistics while the running ones stand still, as in the code of Rebuffi et al. and HAT for generated images."""


class Copy(Protocol):
    """A faster network that computes the same in evaluation mode, up to rounding."""

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits."""

    def refresh(self) -> None:
        """Take over the original's present weights and running statistics."""


_COPIES: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


def craft_through(model: nn.Module, copy: nn.Module | None) -> None:
    """Let examples against `model` be crafted through a `Copy` of it from now on; `None` ends that."""
    if copy is None:
        _COPIES.pop(model, None)
    else:
        _COPIES[model] = copy


Forward = Callable[[Tensor], Tensor]
_FORWARDS: WeakKeyDictionary[nn.Module, Forward] = WeakKeyDictionary()


def run_through(model: nn.Module, forward: Forward | None) -> None:
    """Let the training loss call `forward`, such as a compiled one, in the place of the model; `None` ends that.

    It must not keep the model alive: the model would never go, for its entry lasts as long as it does.
    """
    if forward is None:
        _FORWARDS.pop(model, None)
    else:
        _FORWARDS[model] = forward


def forward_of(model: nn.Module) -> Forward:
    """Return what computes the model's logits in the training loss."""
    return _FORWARDS.get(model, model)


def crafting_copy(model: nn.Module) -> nn.Module | None:
    """Return the copy that examples against `model` are crafted through, if there is one."""
    return _COPIES.get(model)


@contextmanager
def crafting(model: nn.Module, mode: Crafting = "eval") -> Iterator[nn.Module]:
    """Freeze the parameters, set the mode, and put both back as they were, module by module.

    What it gives is the network to craft against: in `eval` mode the model's faster copy, where it has one.

    Frozen parameters keep autograd from building the graph of weight gradients that no attack needs. The flags are
    restored one by one because a caller may have frozen layers, or keep some BatchNorm in eval mode, on purpose.
    """
    modes = [(module, module.training) for module in model.modules()]
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.training and m.track_running_stats]
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        if mode == "eval":
            model.eval()
        if mode == "batch":
            for norm in norms:
                norm.track_running_stats = False
        for parameter in frozen:
            parameter.requires_grad_(False)
        copy = _COPIES.get(model) if mode == "eval" else None
        if copy is None:
            yield model
        else:
            cast(Copy, copy).refresh()  # at every beginning: no sign tells all the ways in which weights may change
            yield copy
    finally:
        for module, training in modes:
            module.training = training
        for norm in norms:
            norm.track_running_stats = True
        for parameter in frozen:
            parameter.requires_grad_(True)
