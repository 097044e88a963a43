"""Each mistake that the paper's method invites makes the comparison with the twins fail.

A mistake is a patch of behaviour: a part gets other arguments, another clock, or another collaborator.
"""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.contract.test_twins import OPTIONS
from tests.support.contract_setting import CONFIGS, check_against_twin
from uiat.attacks.ascent import ascend
from uiat.methods.method import Method
from uiat.models.features import Features
from uiat.objectives import terms
from uiat.objectives.divergence import kl_divergence
from uiat.targets import MomentumTarget, OneOffTarget, PredictionTable, Target, instance, remembered, universal
from uiat.targets.remembered import _mix
from uiat.targets.universal import add_clipped
from uiat.types import Batch, Clock, Loss, View

Mistake = Callable[[pytest.MonkeyPatch], None]


def instead(owner: ModuleType | type, name: str, wrong: Callable[..., Any]) -> Mistake:
    """The mistake that `wrong` replaces a function or method."""
    return lambda patch: patch.setattr(owner, name, wrong)


def upwards(module: ModuleType) -> Mistake:
    """The inverse adversarial example of a module raises the loss."""
    return instead(module, "ascend", lambda *args, **settings: ascend(*args, **settings | {"direction": 1}))


def signs(module: ModuleType, first: int, second: int) -> Mistake:
    """Eq. 4 with these signs of the distances to the features of x and of x̂; +1 and −1 are right."""

    def inverse_loss(
        model: nn.Module, x: Tensor, y: Tensor, x_adv: Tensor, *, beta: float, penultimate: Features, **_: Any
    ) -> Callable[[Tensor], Tensor]:
        with torch.no_grad():
            natural, adversarial = penultimate(model, x)[0], penultimate(model, x_adv)[0]

        def loss(x_inv: Tensor) -> Tensor:
            features, logits = penultimate(model, x_inv)
            to_natural, to_adversarial = ((features - other).abs().mean(dim=1) for other in (natural, adversarial))
            pull = first * to_natural + second * to_adversarial
            return F.cross_entropy(logits, y, reduction="none") + beta * pull

        return loss

    return instead(module, "inverse_loss", inverse_loss)


def at_other_epochs(target: type[Target], name: str, taken_for: dict[int, int]) -> Mistake:
    """A target's method takes epoch T + k for T + taken_for[k], where T is its own moment (T' for the one-off)."""
    right = getattr(target, name)

    def wrong(self: Any, *args: Any) -> Any:
        *others, clock = args
        moment = clock.epoch_at(self.momentum.start if target is MomentumTarget else self.one_off.epoch)
        offset = clock.epoch - moment
        return right(self, *others, replace(clock, epoch=moment + taken_for.get(offset, offset)))

    return instead(target, name, wrong)


def p_before_z(self: Method, model: nn.Module, batch: Batch, clock: Clock) -> Loss:
    view = self.craft(model, batch, clock)
    loss = self.loss(view, clock)
    self.prepare(model, [view], clock)
    return loss


def unclipped(x: Tensor, z: Tensor, which: Tensor) -> Tensor:
    return x + z[which]


def clipped_without_gradient(x: Tensor, z: Tensor, which: Tensor) -> Tensor:
    free = unclipped(x, z, which)
    return free + (add_clipped(x, z, which) - free).detach()


def rounded_up(self: Clock, when: float, right: Callable[[Clock, float], int] = Clock.epoch_at) -> int:
    return right(self, when) + (when < 1)


def all_seen(
    self: PredictionTable, view: View, right: Callable[..., tuple[Tensor, Tensor]] = PredictionTable.recall
) -> tuple[Tensor, Tensor]:
    log_p, seen = right(self, view)
    return log_p, torch.ones_like(seen)


def ignore(*_: Any) -> None:
    pass


def stores_in_its_epoch_only(
    self: OneOffTarget, view: View, clock: Clock, right: Callable[..., Tensor] = OneOffTarget.forward
) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        if clock.epoch > clock.epoch_at(self.one_off.epoch):
            patch.setattr(PredictionTable, "store", ignore)
        return right(self, view, clock)


MISTAKES: dict[str, tuple[Mistake, str]] = {
    "inverse step upwards (universal)": (upwards(universal), "uiat"),
    "inverse step upwards (instance)": (upwards(instance), "iat"),
    "first feature term's sign": (signs(universal, -1, -1), "strong features"),
    "second feature term's sign": (signs(universal, 1, 1), "strong features"),
    "first feature term's sign (instance)": (signs(instance, -1, -1), "strong features, instance"),
    "KL's direction": (instead(terms, "kl_divergence", lambda log_p, log_q: kl_divergence(log_q, log_p)), "uiat"),
    "p before the update of z": (instead(Method, "forward", p_before_z), "uiat"),
    "no clip in the gradient of z": (instead(universal, "add_clipped", clipped_without_gradient), "uiat"),
    "no clip of x + z at all": (instead(universal, "add_clipped", unclipped), "uiat"),
    "T one late": (at_other_epochs(MomentumTarget, "forward", {0: -1}), "uiat"),
    "T one early": (at_other_epochs(MomentumTarget, "forward", {-2: -1, -1: 0}), "uiat"),
    "table filled from T on": (at_other_epochs(MomentumTarget, "forward", {-1: -2}), "uiat"),
    "table filled from T - 2 on": (at_other_epochs(MomentumTarget, "forward", {-2: -1}), "uiat"),
    "T' one late for p": (at_other_epochs(OneOffTarget, "forward", {0: -1}), "uiat-oneoff"),
    "T' one early for p": (at_other_epochs(OneOffTarget, "forward", {-1: 0}), "uiat-oneoff"),
    "T' one late for z": (at_other_epochs(OneOffTarget, "prepare", {0: -1, 1: 0}), "uiat-oneoff"),
    "T' one early for z": (at_other_epochs(OneOffTarget, "prepare", {-1: 0, 0: 1}), "uiat-oneoff"),
    "T rounded up": (instead(Clock, "epoch_at", rounded_up), "uiat"),
    "T' rounded up": (instead(Clock, "epoch_at", rounded_up), "uiat-oneoff"),
    "momentum mixes the wrong way": (
        instead(remembered, "_mix", lambda before, fresh, gamma: _mix(fresh, before, gamma)),
        "uiat",
    ),
    "unseen samples mixed with nothing": (instead(PredictionTable, "recall", all_seen), "uiat"),
    "p not stored": (instead(PredictionTable, "store", ignore), "uiat-oneoff"),
    "unseen samples not stored": (instead(OneOffTarget, "forward", stores_in_its_epoch_only), "uiat-oneoff"),
}

HARMLESS: dict[str, tuple[Mistake, str]] = {
    "features with the right signs": (signs(universal, 1, -1), "strong features"),
    "features with the right signs (instance)": (signs(instance, 1, -1), "strong features, instance"),
    "momentum at its own epochs": (at_other_epochs(MomentumTarget, "forward", {}), "uiat"),
    "one-off p at its own epochs": (at_other_epochs(OneOffTarget, "forward", {}), "uiat-oneoff"),
    "one-off z at its own epochs": (at_other_epochs(OneOffTarget, "prepare", {}), "uiat-oneoff"),
}
"""The same patches without the mistake: what is noticed is the mistake, not the patch."""


def case(name: str) -> tuple[str, Any]:
    return OPTIONS[name] if name in OPTIONS else (name, CONFIGS[name])


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_noticed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, name = MISTAKES[mistake]
    make(monkeypatch)
    with pytest.raises(AssertionError):
        check_against_twin(*case(name))


@pytest.mark.parametrize("patch", HARMLESS)
def test_patch_without_the_mistake_passes(patch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, name = HARMLESS[patch]
    make(monkeypatch)
    check_against_twin(*case(name))
