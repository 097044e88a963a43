"""The state a network is in while examples are crafted against it, and which network they are crafted with."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Crafting = Literal["eval", "train", "batch"]
"""BatchNorm while crafting: `eval` uses running statistics; `train` leaves the network in its training mode, so that
batch statistics are used and the running ones move, as in the single-step methods' own code; `batch` uses batch
statistics while the running ones stand still, as in the code of Rebuffi et al. and HAT for generated images."""


@runtime_checkable
class Accelerated(Protocol):
    """A model that brings faster ways to compute the same (`uiat.models.fast.FastModel`)."""

    def crafting_network(self) -> nn.Module:
        """Return the network to craft with in `eval` mode, with the model's present weights and statistics."""

    def loss_logits(self, x: Tensor) -> Tensor:
        """Return the logits that a training loss is made of."""


def loss_logits(model: nn.Module, x: Tensor) -> Tensor:
    """Return the logits that a training loss is made of: of the compiled forward, where the model has one."""
    return model.loss_logits(x) if isinstance(model, Accelerated) else model(x)


@contextmanager
def crafting(model: nn.Module, mode: Crafting = "eval") -> Iterator[nn.Module]:
    """Freeze the parameters, set the mode, and put both back as they were, module by module.

    It yields the network to craft with: the model, or in `eval` mode the faster network that an `Accelerated` one has.

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
        yield model.crafting_network() if mode == "eval" and isinstance(model, Accelerated) else model
    finally:
        for module, training in modes:
            module.training = training
        for norm in norms:
            norm.track_running_stats = True
        for parameter in frozen:
            parameter.requires_grad_(True)
