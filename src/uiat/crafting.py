"""The state a network is in while examples are crafted against it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import nn

Crafting = Literal["eval", "train"]
"""BatchNorm while crafting: `eval` uses running statistics; `train` leaves the network in its training mode, so that
batch statistics are used and the running ones move, as in the single-step methods' own code."""


@contextmanager
def crafting(model: nn.Module, mode: Crafting = "eval") -> Iterator[nn.Module]:
    """Freeze the parameters, set the mode, and put both back as they were, module by module.

    Frozen parameters keep autograd from building the graph of weight gradients that no attack needs. The flags are
    restored one by one because a caller may have frozen layers, or keep some BatchNorm in eval mode, on purpose.
    """
    modes = [(module, module.training) for module in model.modules()]
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        if mode == "eval":
            model.eval()
        for parameter in frozen:
            parameter.requires_grad_(False)
        yield model
    finally:
        for module, training in modes:
            module.training = training
        for parameter in frozen:
            parameter.requires_grad_(True)
