"""The fast path: a model with a faster network for attacks and a compiled forward for the loss."""

from contextlib import suppress
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from uiat.crafting import AcceleratedNetwork, crafting
from uiat.errors import UserError
from uiat.models.compiled import Compiled
from uiat.models.features import Features
from uiat.models.folding import AcceleratedCopy, folded_copy
from uiat.models.layout import to_channels_last
from uiat.models.probe import close, full_precision, untouched

__all__ = ["AcceleratedModel", "speed_up", "to_channels_last"]

DRIFT = 1e-2
"""Tolerance of the copy's logits in later checks, relative to the largest: trained weights may round worse than initial
ones, but a copy that no longer follows the model computes another function."""


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
