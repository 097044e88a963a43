"""The base class of all targets."""

from collections.abc import Sequence

from torch import Tensor, nn

from uiat.types import Clock, View


class Target(nn.Module):
    """Names the distribution p that the prediction on x̂ is pulled towards, as log-probabilities.

    A step calls `prepare` once with all the micro-batches of the batch (in each process, with those of its share), then
    the target itself for each of them. State lives in buffers, so `state_dict` is complete.
    """

    @property
    def remembers(self) -> bool:
        """Whether it keeps a prediction for every sample, and so needs sample indices."""
        return False

    def prepare(self, model: nn.Module, views: Sequence[View], clock: Clock) -> None:
        """Do what must happen for the whole batch before any p is taken (such as the update of z)."""

    def forward(self, view: View, clock: Clock) -> Tensor:
        """Return log p for each sample of the view."""
        raise TypeError(f"{type(self).__name__} is a target without a distribution: it must define forward")
