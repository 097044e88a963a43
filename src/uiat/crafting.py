"""Crafting mode: the network that examples are crafted with, its BatchNorm mode, and frozen parameters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Crafting = Literal["eval", "train", "batch"]
"""BatchNorm while crafting: `eval` uses running statistics; `train` leaves the network in training mode, so that
batch statistics are used and the running ones updated, as in the code of the single-step methods; `batch` uses batch
statistics without updating the running ones, as in the code of Rebuffi et al. and HAT for generated images."""


FeatureExtractor = Callable[[nn.Module, Tensor], tuple[Tensor, Tensor]]
"""Returns a model's features (N, D) and logits of x from one forward (`uiat.models.features`)."""


class AcceleratedNetwork(nn.Module):
    """The base of networks that compute what a model does, faster; a method takes one in the model's place.

    Args:
        model: the model.
        features: extracts the features of the model.
    """

    def __init__(self, model: nn.Module, features: FeatureExtractor):
        super().__init__()
        self._original, self._features = (model,), features  # in a tuple, it is no submodule

    @property
    def original(self) -> nn.Module:
        """The model."""
        return self._original[0]

    def penultimate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's features (N, D) and logits of x, from one forward."""
        return self._features(self.original, x)

    def crafting_network(self) -> nn.Module:
        """Return the network to craft with in `eval` mode, with the model's present weights and statistics."""
        return self

    def loss_logits(self, x: Tensor) -> Tensor:
        """Return the logits that a training loss is computed from."""
        logits: Tensor = self(x)
        return logits


def loss_logits(model: nn.Module, x: Tensor) -> Tensor:
    """Return the logits that a training loss is computed from: of the compiled forward, if the model has one."""
    return model.loss_logits(x) if isinstance(model, AcceleratedNetwork) else model(x)


@contextmanager
def crafting(model: nn.Module, mode: Crafting = "eval") -> Iterator[nn.Module]:
    """Freeze the parameters and set the mode; restore both on exit, module by module.

    It yields the network to craft with: the model, or in `eval` mode the faster one of an `AcceleratedNetwork`.

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
        yield model.crafting_network() if mode == "eval" and isinstance(model, AcceleratedNetwork) else model
    finally:
        for module, training in modes:
            module.training = training
        for norm in norms:
            norm.track_running_stats = True
        for parameter in frozen:
            parameter.requires_grad_(True)
