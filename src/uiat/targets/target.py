"""Base class of targets, and the clean prediction f(x) as target."""

from collections.abc import Sequence

from torch import Tensor, nn

from uiat.types import Clock, View


class Target(nn.Module):
    """Returns log p, where p is the distribution that the prediction on x̂ is pulled towards.

    A step calls `prepare` once with all micro-batches of the batch (in each process, with those of its share), then the
    target for each of them. State is kept in buffers, so that `state_dict` is complete.
    """

    @property
    def remembers(self) -> bool:
        """Whether the target keeps a prediction for every sample and therefore needs sample indices."""
        return False

    def prepare(self, model: nn.Module, views: Sequence[View], clock: Clock) -> None:
        """Prepare the whole batch before any p is computed, for example update z."""

    def forward(self, view: View, clock: Clock) -> Tensor:
        """Return log p for each sample of the view."""
        raise TypeError(f"{type(self).__name__} does not define forward, which returns log p")


class CleanTarget(Target):
    """p = f(x), with a gradient unless `detach` is set (and never with `running` statistics)."""

    def __init__(self, detach: bool = False, running: bool = False):
        super().__init__()
        self.detach, self.running = detach or running, running

    def forward(self, view: View, clock: Clock) -> Tensor:
        """Return log f(x); terms that need f(x) share the forward."""
        if not self.detach:
            return view.clean.log_softmax(dim=1)
        return view.predict(view.batch.x, detach=True, running=self.running)
