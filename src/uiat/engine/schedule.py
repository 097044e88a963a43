"""Learning rates as a plain function of the step, so that a resume has nothing to restore."""

from dataclasses import dataclass
from math import cos, pi
from typing import Literal

from uiat.added import added


@dataclass(frozen=True)
class Schedule:
    """The learning rate over a run."""

    name: Literal["onecycle", "piecewise", "triangular"] = "onecycle"
    """`onecycle`: cosine up to the maximum and down to almost nothing; `piecewise`: drops at the milestones;
    `triangular`: straight up and straight down to zero."""
    lr: float = 0.1
    """The maximum (the first one, if piecewise)."""
    warmup: float = 0.25
    """Where the maximum lies, as a fraction of the run (onecycle, triangular)."""
    milestones: tuple[float, ...] = (0.5, 0.75)
    """Where the rate drops, as fractions of the run (piecewise)."""
    factor: float = 0.1
    """What it is multiplied with at each milestone (piecewise)."""
    low_momentum: float | None = added(None)
    """SGD's momentum where the rate is at its maximum; it moves in proportion to the rate. `None`: not cycled."""

    def at(self, step: int, steps: int) -> float:
        """Return the learning rate of `step`, counted from 0, in a run of `steps`."""
        if self.name == "piecewise":
            return float(self.lr * self.factor ** sum(step >= m * steps for m in self.milestones))
        if self.name == "triangular":
            top = self.warmup * steps
            return self.lr * (step / top if step < top else (steps - step) / (steps - top))
        return self._one_cycle(step, steps)

    def momentum_at(self, step: int, steps: int, momentum: float) -> float:
        """Return SGD's momentum at `step`: `momentum` where the rate is 0, `low_momentum` where it is largest."""
        if self.low_momentum is None:
            return momentum
        return momentum + (self.low_momentum - momentum) * self.at(step, steps) / self.lr

    def _one_cycle(self, step: int, steps: int) -> float:
        """Smith and Topin's one cycle with torch's constants: from lr/25 to lr to lr/250,000, by cosine."""
        low, lowest = self.lr / 25, self.lr / 25e4
        top, end = self.warmup * steps - 1, steps - 1
        if step <= top:
            return _cosine(low, self.lr, step / top if top > 0 else 1.0)
        return _cosine(self.lr, lowest, (step - top) / (end - top) if end > top else 1.0)


def _cosine(start: float, end: float, fraction: float) -> float:
    return end + (start - end) / 2 * (1 + cos(pi * fraction))
