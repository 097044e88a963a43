"""Starting points of attacks and inverse attacks."""

from typing import Literal

from torch import Tensor

from uiat.balls import Ball
from uiat.rng import Draws

Start = Literal["uniform", "gaussian", "none"]
"""`uniform` in the ball, cut to [0, 1]; `gaussian`: x + 0.001·N(0, 1), which the code of TRADES, MART and HAT does not
clip; `none`: x."""

GAUSSIAN = 0.001


def starting_point(start: Start, ball: Ball, x: Tensor, draws: Draws, purpose: str) -> Tensor:
    """Return the starting point; a Gaussian one may lie slightly outside [0, 1]."""
    if start == "uniform":
        return ball.random(draws, purpose)
    if start == "gaussian":
        return x + GAUSSIAN * draws.normal(purpose, x)
    return x
