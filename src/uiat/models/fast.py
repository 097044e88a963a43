"""The fast path: channels_last memory, a faster network for attacks, and a compiled forward for the loss."""

import warnings
from collections.abc import Callable, Hashable
from contextlib import suppress
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from uiat.crafting import AcceleratedNetwork, crafting
from uiat.errors import UserError, first_line
from uiat.models.features import Features
from uiat.models.folding import AcceleratedCopy, folded_copy
from uiat.models.probe import agree, close, full_precision, logits_and_gradients, untouched
from uiat.progress import print_message

DRIFT = 1e-2
"""Tolerance of the copy's logits in later checks, relative to the largest: trained weights may round worse than initial
ones, but a copy that no longer follows the model computes another function."""


def to_channels_last(model: nn.Module, x: Tensor | None = None) -> nn.Module:
    """Convert the weights of 2-D convolutions to channels_last memory if the model can run in it; return the model.

    A model that flattens its maps with `view`, for example, cannot. On CPUs a model with strided 1×1 convolutions is
    left unchanged: oneDNN computes wrong gradients for their weights in that memory format when they have few channels,
    or writes out of bounds (oneDNN's issue 6035). The bundled networks have none.

    >>> model = to_channels_last(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten()))
    >>> model[0].weight.is_contiguous(memory_format=torch.channels_last)
    True

    Args:
        model: the classifier; only its memory format changes.
        x: two or more samples, to check that the model still computes the same and can be trained; if not, the old
            format is restored. Nothing is checked without samples, nor for a bundled network.
    """
    convolutions = _convolutions(model)
    strided = any(max(conv.kernel_size) == 1 and max(conv.stride) > 1 for conv in convolutions)
    on_cpu = any(parameter.device.type == "cpu" for parameter in model.parameters())
    if strided and on_cpu:
        return model
    before = [(conv.weight, conv.weight.data) for conv in convolutions]
    is_bundled = type(model).__module__.startswith(f"{__package__}.")
    expected = None if is_bundled or x is None else _logits_and_gradients(model, x, training=False)
    for weight, data in before:
        weight.data = data.to(memory_format=torch.channels_last)
    if is_bundled or x is None:
        return model
    computed = _logits_and_gradients(model, x, training=False)
    trained = _logits_and_gradients(model, x, training=True)
    if expected is None or computed is None or trained is None or not agree(computed, expected):
        for weight, data in before:
            weight.data = data
    return model


def keeps_channels_last(model: nn.Module) -> bool:
    """Return whether every 2-D convolution has its weights in channels_last memory."""
    return all(conv.weight.stride(1) == 1 for conv in _convolutions(model))


def _convolutions(model: nn.Module) -> list[nn.Conv2d]:
    """Return the convolutions whose weight is a parameter, not computed by a parametrization."""
    convs = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    return [conv for conv in convs if isinstance(conv._parameters.get("weight"), Tensor) and conv.weight.ndim == 4]


def _logits_and_gradients(model: nn.Module, x: Tensor, *, training: bool) -> list[Tensor] | None:
    """Return logits and gradients for two samples and the parameters; `None` if the model fails."""
    with untouched(model), full_precision(x.device):
        try:
            model.train(training)
            return logits_and_gradients(model, x[:2], [p for p in model.parameters() if p.requires_grad])
        except Exception:  # a custom forward may raise anything
            return None


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
                self._compiled = None
                print_message(f"{self.what} runs without torch.compile, which failed ({first_line(error)})")
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


class AcceleratedModel(AcceleratedNetwork):
    """A model with faster networks for attacks and the loss (see `speed_up`); pass it to a method in the model's place.

    Its forward is the model's; `crafting` uses `crafting_network`, and a loss `loss_logits`. The model is its only
    submodule; `copy.deepcopy` copies the model without the faster networks.

    Args:
        model: the classifier.
        features: extracts the model's features.
        folded: a copy of the model with BatchNorm folded, for attacks in eval mode.
        compiled: the compiled model, for the loss, and for attacks if there is no copy.
    """

    def __init__(
        self,
        model: nn.Module,
        features: Features | None = None,
        folded: AcceleratedCopy | None = None,
        compiled: Compiled | None = None,
    ):
        super().__init__(model, features or Features())
        self.model = model
        self._folded, self._compiled = (folded,), (compiled,)  # in tuples, they are no submodules

    @property
    def folds(self) -> int:
        """Number of BatchNorm layers folded in the network that attacks use."""
        (folded,) = self._folded
        return 0 if folded is None else len(folded.pairs)

    @property
    def networks(self) -> list[nn.Module]:
        """All networks that a forward may use: the model, its folded copy, the compiled model."""
        return [network for network in (self.model, *self._folded, *self._compiled) if network is not None]

    def forward(self, x: Tensor) -> Tensor:
        """Return the model's logits."""
        logits: Tensor = self.model(x)
        return logits

    def crafting_network(self) -> nn.Module:
        """Return the network to craft with in `eval` mode, with the model's present weights and statistics."""
        (folded,), (compiled,) = self._folded, self._compiled
        if folded is not None and folded.refresh():
            return folded
        return self if compiled is None else AcceleratedCopy(self.model, compiled, self._features)

    def loss_logits(self, x: Tensor) -> Tensor:
        """Return the logits that a training loss is computed from."""
        (compiled,) = self._compiled
        return self.model(x) if compiled is None else compiled(x)  # type: ignore[no-any-return]

    def folded_copy_is_valid(self, x: Tensor) -> bool:
        """Return whether the folded copy, if any, still computes the same as the model; if not, drop it.

        The copy follows the model's tensors, but no other changes, such as of a number that the forward uses; they are
        detected on two samples. The check has no other side effects.
        """
        if not self.folds:
            return True
        with untouched(self.model), full_precision(x.device), torch.no_grad():
            try:
                with crafting(self) as network:
                    theirs = self.model(x)
                    same = not bool(theirs.isfinite().all()) or close(network(x), theirs, DRIFT)
            except Exception:  # the model may have changed in any way
                same = False
        if not same:
            self._folded = (None,)
        return same

    def __deepcopy__(self, memo: dict[int, Any]) -> "AcceleratedModel":
        return AcceleratedModel(deepcopy(self.model, memo))


def speed_up(
    model: nn.Module, x: Tensor, *, fold: bool = True, compile: bool = False, channels_last: bool = True
) -> AcceleratedModel:
    """Return the model with a faster network for attacks, to pass to a method of this package in the model's place.

    Attacks run through a copy with BatchNorm folded, which follows the model's weights; the loss and everything else
    use the model itself. If there is nothing to fold, if tracing cannot follow the model, or if the copy does not
    compute the same, attacks run through the model. Call it before anything registers hooks on the layers, and again
    after the layers themselves change. The model and all random streams remain unchanged.

    >>> network = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten())
    >>> fast = speed_up(torch.nn.Sequential(network, torch.nn.Linear(4 * 6 * 6, 10)), x)
    >>> fast.folds
    1
    >>> loss = SAT().build(data)(fast, batch, Clock(epoch=1, step=0, epochs=30)).total

    Args:
        model: the classifier.
        x: two or more samples, to find the feature layer and to compare the copy with the model.
        fold: whether to fold BatchNorm.
        compile: use torch.compile for the copy (or, without one, for the model in attacks) and for the forwards of the
            loss; if it fails, a line on stderr says so.
        channels_last: whether the copy may be in that memory format.
    """
    if isinstance(model, AcceleratedNetwork):
        model = model.original
    features, layer = Features(), None
    with suppress(UserError):  # only methods that use features need them
        layer = features.layer(model, x)
    tried = x[:2].detach()
    folded = folded_copy(model, tried, features, layer or "", channels_last=channels_last) if fold else None
    compiled = Compiled(model, "the update of the weights" if folded else "the network") if compile else None
    if compile and folded:
        folded.run = Compiled(folded.run, "the attack")
    return AcceleratedModel(model, features, folded, compiled)
