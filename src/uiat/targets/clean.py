"""The clean prediction f(x) as target, as in TRADES, MART and HAT."""

from torch import Tensor

from uiat.targets.target import Target
from uiat.types import Clock, View


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
