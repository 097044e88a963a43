"""Where an attack or an inverse attack starts."""

from typing import Literal

from torch import Tensor

from uiat.balls import Ball
from uiat.rng import Draws

Start = Literal["uniform", "gaussian", "none"]
"""`uniform` in the ball; `gaussian`: 0.001·N(0, 1), as in Alg. S1 and the code of TRADES, MART, HAT; `none`: x."""

GAUSSIAN = 0.001


def starting_point(start: Start, ball: Ball, x: Tensor, draws: Draws, purpose: str) -> Tensor:
    """Return the point of the ball around x where the first gradient is taken."""
    if start == "uniform":
        return ball.random(draws, purpose)
    if start == "gaussian":
        return ball.project(x + GAUSSIAN * draws.normal(purpose, x))
    return x
