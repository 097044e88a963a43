"""Runs attacks one after another on the examples that still stand, batch by batch, so that it can stop anywhere."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from uiat.attacks import Attack
from uiat.data.images import Images, to_unit
from uiat.evaluation.ledger import Ledger, Stage
from uiat.rng import SampleDraws


class Component(Protocol):
    """One attack of a cascade."""

    @property
    def name(self) -> str:
        """What it is called in results."""

    @property
    def cost(self) -> float:
        """Rough cost of one example, in passes, for the remaining time."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, index: tuple[int, ...]) -> Tensor:
        """Return adversarial examples for x, whose places in the data set are `index`."""


@dataclass(frozen=True)
class Restart:
    """One random restart of an attack of ours; its start belongs to the example, not to the batch."""

    attack: Attack
    steps: int
    seed: int
    restart: int = 0

    @property
    def name(self) -> str:
        """The number of the restart."""
        return f"restart {self.restart + 1}"

    @property
    def cost(self) -> float:
        """One forward and backward a step, and a look at the result."""
        return self.steps + 0.5

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, index: tuple[int, ...]) -> Tensor:
        """Attack every x."""
        return self.attack(model, x, y, SampleDraws(self.seed, restart=self.restart, index=index))


Advance = Callable[[float, str, bool], object]
"""Called with the work done, its label, and whether it took no time."""


def run_cascade(
    model: nn.Module,
    images: Images,
    name: str,
    components: Sequence[Component],
    *,
    batch_size: int,
    device: torch.device | str,
    ledger: Ledger,
    keep: bool = False,
    advance: Advance = lambda work, label, free: None,
) -> Stage:
    """Attack the examples that the stage `name` says are standing; none but those are touched again.

    The stage must be in the ledger with the examples that are classified right without an attack. The ledger is saved
    after every batch; an interrupted stage goes on with its next one.
    """
    stage = ledger.stages[name]
    if stage.finished:
        advance(sum(component.cost for component in components) * len(images), name, True)
        return stage
    began = time.perf_counter() - stage.seconds
    for position, component in enumerate(components):
        if position < stage.component:
            advance(component.cost * len(images), f"{name}: {component.name}", True)
            continue
        if stage.batch == 0:
            stage.queue = stage.standing.nonzero().flatten()
        done = min(len(stage.queue), stage.batch * batch_size)
        advance(component.cost * (len(images) - len(stage.queue) + done), f"{name}: {component.name}", True)
        for start in range(done, len(stage.queue), batch_size):
            members = stage.queue[start : start + batch_size]
            x_adv, right = _attack(model, images, component, members, device)
            stage.standing[members[~right]] = False
            if keep:
                stage.keep(members[~right], x_adv[~right])
            stage.batch += 1
            stage.seconds = time.perf_counter() - began
            ledger.save()
            advance(component.cost * len(members), f"{name}: {component.name}", False)
        stage.after[component.name] = float(stage.standing.double().mean())
        stage.component, stage.batch = position + 1, 0
    stage.finished, stage.seconds = True, time.perf_counter() - began
    ledger.save()
    return stage


def natural_stage(
    model: nn.Module,
    images: Images,
    *,
    batch_size: int,
    device: torch.device | str,
    members: Tensor | None = None,
) -> Stage:
    """Return which of the members (all examples) are classified right without an attack; the others do not stand."""
    began = time.perf_counter()
    members = torch.arange(len(images)) if members is None else members
    standing = torch.zeros(len(images), dtype=torch.bool)
    invalid = 0
    for part in members.split(batch_size):
        x, y = _pixels(images, part, device)
        with torch.no_grad():
            logits = model(x)
        standing[part] = is_correct(logits, y).cpu()
        invalid += int(logits.isnan().any(dim=1).sum())
    seconds = time.perf_counter() - began
    return Stage(standing, torch.empty(0, dtype=torch.long), seconds=seconds, finished=True, invalid=invalid)


def is_correct(logits: Tensor, y: Tensor) -> Tensor:
    """Return whether the largest logit is the label's; logits with a NaN are wrong, though `argmax` returns a class."""
    return predictions(logits) == y


def predictions(logits: Tensor) -> Tensor:
    """Return the class of the largest logit; the number of classes, which is that of none, where one is NaN."""
    return torch.where(logits.isnan().any(dim=-1), logits.shape[-1], logits.argmax(dim=-1))


def _attack(
    model: nn.Module, images: Images, component: Component, members: Tensor, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    x, y = _pixels(images, members, device)
    with torch.no_grad():
        x_adv = component(model, x, y, tuple(members.tolist()))
        right = is_correct(model(x_adv), y)
    return x_adv.detach().cpu(), right.cpu()


def _pixels(images: Images, members: Tensor, device: torch.device | str) -> tuple[Tensor, Tensor]:
    x, y = images.x[members].to(device), images.y[members].to(device)
    return to_unit(x), y
