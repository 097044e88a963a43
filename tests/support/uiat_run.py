"""One small UIAT run on digits, shared by all tests of inverse adversarial examples in a process."""

import copy
from dataclasses import replace
from functools import cache

from torch import Tensor, nn

from tests.support.runs import CPU, finished, splits, tiny
from uiat.config import Schedule, Validation
from uiat.data import Splits
from uiat.data.data_config import DataConfig
from uiat.engine.setup import build_model
from uiat.models import ResNet
from uiat.runs.run_folder import RunFolder
from uiat.runs.weights import load_weights

DATA = DataConfig(name="digits", subset=600, test_subset=120, crop=0, flip=False)
SMALL = replace(
    tiny("uiat", epochs=6, batch_size=32, schedule=Schedule(lr=0.05)), data=DATA, model=ResNet(blocks=(1, 1), width=8)
)
CONFIG = replace(SMALL, validate=Validation(eps=0.2, steps=3))
EPS, INNER = 0.2, 0.1
"""ε and ε' of the recipe."""


def trained() -> RunFolder:
    """Return the run. Tests that write into it take a copy."""
    return finished(CONFIG)


@cache
def network(weights: str = "best") -> nn.Module:
    """Load its network, frozen and in eval mode."""
    model = build_model(CONFIG, images().spec, CPU)
    load_weights(model, trained().path / f"{weights}.safetensors")
    return model.eval().requires_grad_(False)


class Precise(nn.Module):
    """A network in double precision for images in single precision.

    A slope that is 0 up to rounding has a sign by chance, which in single precision depends on the size of a batch and
    on the CPU, and so does the fate of an image at the border. In double precision that is too rare to be met.
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = copy.deepcopy(network).double()
        self.penultimate_layer = "network.linear"

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x.double())
        return logits.to(x.dtype)


@cache
def precise() -> nn.Module:
    """Return the network in double precision."""
    return Precise(network()).eval().requires_grad_(False)


def images() -> Splits:
    """Return the images it was trained and is tested on."""
    return splits(DATA)
