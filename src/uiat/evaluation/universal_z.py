"""The universal inverse perturbations z of a network: the ones its run ended with, or new ones for its weights."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from uiat.data.images import Images, stratified
from uiat.data.loader import Loader
from uiat.errors import UserError
from uiat.evaluation.inverse_settings import InverseSettings
from uiat.methods import Method
from uiat.progress import Ticker
from uiat.runs.checkpoint import Checkpointer
from uiat.runs.folder import RunFolder
from uiat.targets import UniversalInverseTarget
from uiat.types import Clock

BATCH = 128
"""m of the paper: how many images a step of z sees."""


@dataclass(frozen=True)
class Universal:
    """z of each class, and where it comes from."""

    z: Tensor
    source: str


def read_z(run: RunFolder) -> Universal | None:
    """Return z from a run's checkpoint; `None` where there is no checkpoint, or its method has no z."""
    try:
        saved = Checkpointer(run).read()
    except UserError:
        raise UserError(f"the checkpoint of {run.path} is damaged or of another version: use --weights best.") from None
    if saved is None:
        return None
    found = [value for name, value in saved["method"].items() if name.split(".")[-1] == "z"]
    epoch, step = saved["epoch"], saved["step"]
    when = f"step {step} of epoch {epoch}" if step else f"epoch {epoch - 1}"
    return Universal(found[0], f"the run's own, from its checkpoint after {when}") if found else None


def make_z(
    model: nn.Module,
    images: Images,
    settings: InverseSettings,
    *,
    passes: int,
    count: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Universal:
    """Find z for weights that stay as they are: the steps of Alg. 1 on z, in `passes` passes over `count` images."""
    for name, value in (("--passes", passes), ("--z-images", count)):
        if value < 1:
            raise UserError(f"{name} is {value}: give at least 1.")
    chosen = images.take(stratified(images.y, min(count, len(images)), seed)[0])
    target = UniversalInverseTarget(settings.universal, chosen.spec, seed=seed).to(device)
    attack = settings.attack if settings.beta else None  # without the feature-level term nobody asks for x̂
    method = Method(chosen.spec, attack=attack, target=target, terms=(), seed=seed)
    loader = Loader(chosen, BATCH, seed, device=device)
    with torch.no_grad(), Ticker(passes * loader.steps_per_epoch, "making z") as ticker:
        for epoch in range(1, passes + 1):
            for step, batch in loader.epoch(epoch):
                clock = Clock(epoch, step, passes)
                method.prepare(model, [method.craft(model, batch, clock)], clock)
                ticker.advance(1)
    times = "1 pass" if passes == 1 else f"{passes} passes"
    return Universal(target.z.cpu(), f"made anew for these weights, in {times} over {len(chosen)} training images")
