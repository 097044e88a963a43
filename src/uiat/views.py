"""One batch as the loss sees it."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from uiat.crafting import Crafting, crafting, forward_of
from uiat.logits import check_logits
from uiat.precision import widen
from uiat.rng import Draws
from uiat.types import Batch


@dataclass
class View:
    """A (micro-)batch, its adversaries, and the network's predictions on them, each made at most once.

    Predictions are made in the mode the caller has set (normally `train`), so every one of them updates BatchNorm's
    running statistics. x, x̌ and x̂ are separate forwards, never one concatenated batch.
    """

    model: nn.Module
    batch: Batch
    x_adv: Tensor
    draws: Draws
    mode: Crafting
    """The mode in which x̂ was crafted and in which x̌ is."""
    gradient: Tensor | None = None
    """The gradient of cross-entropy at x, for each sample, where the attack took it and a term uses it (GradAlign)."""
    x_inv: Tensor | None = None
    """x̌, once a target has crafted it."""
    log_p: Tensor | None = None
    """The target distribution, once the method has asked for it."""
    classes: int | None = None
    """How many logits a sample must have; `None` where nobody knows."""

    def predict(self, x: Tensor, *, detach: bool, running: bool = False) -> Tensor:
        """Return log f(x), with no graph when the target is detached.

        With `running`, BatchNorm uses its running statistics, which stand still, and there is never a graph.
        """
        if running:
            with torch.no_grad(), crafting(self.model) as network:
                return widen(network(x)).log_softmax(dim=1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
            return self.logits(x).log_softmax(dim=1)

    def logits(self, x: Tensor) -> Tensor:
        """Return f(x), compiled if the model is, in at least float32."""
        found = forward_of(self.model)(x)
        return widen(found if self.classes is None else check_logits(found, len(x), self.classes))

    @cached_property
    def clean(self) -> Tensor:
        """Logits f(x), with a graph."""
        return self.logits(self.batch.x)

    @cached_property
    def adversarial(self) -> Tensor:
        """Logits f(x̂), with a graph."""
        return self.logits(self.x_adv)
