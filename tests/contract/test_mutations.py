"""Each mistake that the paper's method invites makes the comparison with the twins fail."""

from typing import Any

import pytest

from tests.contract.test_twins import OPTIONS
from tests.support.contract_setting import CONFIGS, check_against_twin
from tests.support.mutate import Mutation
from uiat.methods.method import Method
from uiat.objectives.divergence import kl_divergence
from uiat.objectives.inverse import inverse_loss
from uiat.targets.instance import InstanceInverse
from uiat.targets.momentum import MomentumTarget
from uiat.targets.one_off import OneOffTarget
from uiat.targets.universal import UniversalInverseTarget, add_clipped
from uiat.types import Clock

FEATURES = "distance(features, natural) - distance(features, adversarial)"

MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "inverse step upwards (universal)": (
        Mutation(UniversalInverseTarget.prepare, "direction=-1", "direction=1"),
        "uiat",
    ),
    "inverse step upwards (instance)": (Mutation(InstanceInverse.__call__, "direction=-1", "direction=1"), "iat"),
    "first feature term's sign": (
        Mutation(inverse_loss, FEATURES, "-distance(features, natural) - distance(features, adversarial)"),
        "strong features",
    ),
    "second feature term's sign": (
        Mutation(inverse_loss, FEATURES, "distance(features, natural) + distance(features, adversarial)"),
        "strong features",
    ),
    "first feature term's sign (instance)": (
        Mutation(inverse_loss, FEATURES, "-distance(features, natural) - distance(features, adversarial)"),
        "strong features, instance",
    ),
    "KL's direction": (Mutation(kl_divergence, "F.kl_div(log_q, log_p", "F.kl_div(log_p, log_q"), "uiat"),
    "p before the update of z": (
        Mutation(
            Method.forward,
            "    self.prepare(model, [view], clock)\n    return self.loss(view, clock)",
            "    loss = self.loss(view, clock)\n    self.prepare(model, [view], clock)\n    return loss",
        ),
        "uiat",
    ),
    "no clip in the gradient of z": (
        Mutation(
            add_clipped,
            "(x + z.index_select(0, which)).clamp(*PIXELS)",
            "(a := x + z.index_select(0, which)) + (a.clamp(*PIXELS) - a).detach()",
        ),
        "uiat",
    ),
    "no clip of x + z at all": (Mutation(add_clipped, ".clamp(*PIXELS)", ""), "uiat"),
    "T one late": (Mutation(MomentumTarget.forward, "clock.epoch >= begin:", "clock.epoch > begin:"), "uiat"),
    "T one early": (
        Mutation(MomentumTarget.forward, "(self.momentum.start)", "(self.momentum.start) - 1"),
        "uiat",
    ),
    "table filled from T on": (
        Mutation(MomentumTarget.forward, "clock.epoch < begin - 1", "clock.epoch < begin"),
        "uiat",
    ),
    "table filled from T - 2 on": (
        Mutation(MomentumTarget.forward, "clock.epoch < begin - 1", "clock.epoch < begin - 2"),
        "uiat",
    ),
    "T' one late for p": (
        Mutation(OneOffTarget.forward, "clock.epoch < moment", "clock.epoch <= moment"),
        "uiat-oneoff",
    ),
    "T' one early for p": (
        Mutation(OneOffTarget.forward, "clock.epoch < moment", "clock.epoch < moment - 1"),
        "uiat-oneoff",
    ),
    "T' one late for z": (
        Mutation(OneOffTarget.prepare, "clock.epoch == clock.epoch_at(", "clock.epoch - 1 == clock.epoch_at("),
        "uiat-oneoff",
    ),
    "T' one early for z": (
        Mutation(OneOffTarget.prepare, "clock.epoch == clock.epoch_at(", "clock.epoch + 1 == clock.epoch_at("),
        "uiat-oneoff",
    ),
    "T rounded up": (Mutation(Clock.epoch_at, "max(1, floor(", "max(1, 1 + floor("), "uiat"),
    "T' rounded up": (Mutation(Clock.epoch_at, "max(1, floor(", "max(1, 1 + floor("), "uiat-oneoff"),
    "momentum mixes the wrong way": (
        Mutation(MomentumTarget.forward, "_mix(before, log_p", "_mix(log_p, before"),
        "uiat",
    ),
    "unseen samples mixed with nothing": (
        Mutation(MomentumTarget.forward, "torch.where(seen, _mix(", "torch.where(seen | True, _mix("),
        "uiat",
    ),
    "unseen samples not stored": (
        Mutation(OneOffTarget.forward, "    self.table.store(view, log_p)\n", ""),
        "uiat-oneoff",
    ),
}


def case(name: str) -> tuple[str, Any]:
    return OPTIONS[name] if name in OPTIONS else (name, CONFIGS[name])


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mistake_is_noticed(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, name = MUTATIONS[mutation]
    change.apply(monkeypatch)
    with pytest.raises(AssertionError):
        check_against_twin(*case(name))
