"""Twins: slow, literal versions of every method, written only from the paper, as oracles for tests.

Nothing here imports `uiat`. Every twin has the signature

    method(model, x, y, index, epoch, epochs, state, draws, hp) -> Result(total, parts)

with `hp` a plain dict (`hp_for(name, **changes)`), `state` a plain dict (`new_state(z)`), and `draws` an
object that gives the random numbers (`Draws`), so that a twin and what it is compared with can share them.
"""

from .basics import Draws, Result, epoch_of, new_state
from .hyper import DEFAULTS, hp_for
from .methods import METHODS

__all__ = ["DEFAULTS", "METHODS", "Draws", "Result", "epoch_of", "hp_for", "new_state"]
