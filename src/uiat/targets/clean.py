"""The clean prediction as target: TRADES, MART and HAT pull f(x̂) towards f(x)."""

from torch import Tensor

from uiat.targets.target import Target
from uiat.types import Clock, View


class CleanTarget(Target):
    """p = f(x); the gradient flows through it unless `detach` (and never with `running` statistics)."""

    def __init__(self, detach: bool = False, running: bool = False):
        super().__init__()
        self.detach, self.running = detach or running, running

    def forward(self, view: View, clock: Clock) -> Tensor:
        """Return log f(x), sharing the forward with a term that needs f(x) too."""
        if not self.detach:
            return view.clean.log_softmax(dim=1)
        return view.predict(view.batch.x, detach=True, running=self.running)
