"""A cascade of attacks, each on the examples that the ones before it did not fool, batch by batch and resumable."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from uiat.data.images import Images, to_unit
from uiat.evaluation.custom_attack import CustomAttack
from uiat.evaluation.ledger import Ledger, Stage
from uiat.progress import Ticker
from uiat.rng import Draws, SampleDraws


class Component(Protocol):
    """One attack of a cascade."""

    @property
    def name(self) -> str:
        """The name in results."""

    @property
    def cost(self) -> float:
        """Rough cost of one example, in passes, for the remaining time."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, index: tuple[int, ...]) -> Tensor:
        """Return adversarial examples for x, whose positions in the data set are `index`."""


@dataclass(frozen=True)
class Restart:
    """One random restart of an attack; its random start depends on the example, not on the batch."""

    attack: Callable[[nn.Module, Tensor, Tensor, Draws], Tensor]
    steps: int
    seed: int
    restart: int = 0

    @property
    def name(self) -> str:
        """The number of the restart."""
        return f"restart {self.restart + 1}"

    @property
    def cost(self) -> float:
        """One forward and backward a step, and a forward to classify the result."""
        return self.steps + 0.5

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, index: tuple[int, ...]) -> Tensor:
        """Attack every x."""
        return self.attack(model, x, y, SampleDraws(self.seed, restart=self.restart, index=index))


def run_cascade(
    model: nn.Module,
    images: Images,
    stage: Stage,
    components: Sequence[Component],
    *,
    batch_size: int,
    device: torch.device | str,
    ledger: Ledger,
    keep: bool = False,
    ticker: Ticker | None = None,
    label: str = "",
) -> None:
    """Attack the examples that are not yet misclassified, one component after another.

    An example that a component fools is not attacked again. The ledger is saved after every batch; an interrupted stage
    resumes at its next one.
    """

    def advance(component: Component, examples: int, *, free: bool) -> None:
        if ticker is not None:
            ticker.advance(component.cost * examples, f"{label}: {component.name}", free=free)

    began = time.perf_counter() - stage.seconds
    for position, component in enumerate(components):
        if position < stage.component:
            advance(component, len(images), free=True)
            continue
        if stage.batch == 0:
            stage.queue = stage.correct.nonzero().flatten()
        done = min(len(stage.queue), stage.batch * batch_size)
        advance(component, len(images) - len(stage.queue) + done, free=True)
        for start in range(done, len(stage.queue), batch_size):
            members = stage.queue[start : start + batch_size]
            x_adv, correct, distance = _attack(model, images, component, members, device)
            stage.distance = max(stage.distance, distance)
            stage.correct[members[~correct]] = False
            if keep:
                stage.keep(members[~correct], x_adv[~correct])
            stage.batch += 1
            stage.seconds = time.perf_counter() - began
            ledger.save()
            advance(component, len(members), free=False)
        stage.after[component.name] = float(stage.correct.double().mean())
        stage.component, stage.batch = position + 1, 0
    if not stage.finished:
        stage.finished, stage.seconds = True, time.perf_counter() - began
        ledger.save()


def natural_stage(
    model: nn.Module, images: Images, stage: Stage, members: Tensor, *, batch_size: int, device: torch.device | str
) -> None:
    """Classify the examples at `members` without an attack; all others count as misclassified."""
    if stage.finished:
        return
    began = time.perf_counter()
    for part in members.split(batch_size):
        x, y = _pixels(images, part, device)
        with torch.no_grad():
            logits = model(x)
        stage.correct[part] = is_correct(logits, y).cpu()
        stage.invalid += int(logits.isnan().any(dim=1).sum())
    stage.finished, stage.seconds = True, time.perf_counter() - began


def is_correct(logits: Tensor, y: Tensor) -> Tensor:
    """Return whether the largest logit is that of the label; logits with a NaN count as misclassified."""
    return predictions(logits) == y


def predictions(logits: Tensor) -> Tensor:
    """Return the class of the largest logit; the number of classes, which is no class, where a logit is NaN."""
    return torch.where(logits.isnan().any(dim=-1), logits.shape[-1], logits.argmax(dim=-1))


def _attack(
    model: nn.Module, images: Images, component: Component, members: Tensor, device: torch.device | str
) -> tuple[Tensor, Tensor, float]:
    x, y = _pixels(images, members, device)
    with torch.no_grad():
        x_adv = component(model, x, y, tuple(members.tolist()))
        distance = component.distance(x, x_adv) if isinstance(component, CustomAttack) else 0.0
        correct = is_correct(model(x_adv), y)
    return x_adv.detach().cpu(), correct.cpu(), distance


def _pixels(images: Images, members: Tensor, device: torch.device | str) -> tuple[Tensor, Tensor]:
    x, y = images.x[members].to(device), images.y[members].to(device)
    return to_unit(x), y
