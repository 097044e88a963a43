"""Inverse examples: their settings, their bounds, and the shares recomputed by a plain loop."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.uiat_run import CONFIG, EPS, INNER, images, precise
from uiat.attacks import PGD
from uiat.errors import UserError
from uiat.evaluation.intervals import wilson
from uiat.evaluation.inverses import IMAGE_KINDS, Inverses, inverse_settings, make_inverses
from uiat.methods import METHODS
from uiat.models import penultimate
from uiat.rng import SampleDraws
from uiat.targets import InstanceInverse, UniversalInverse

BASE = PGD(eps=EPS, step=None, steps=20)
SETTINGS = inverse_settings(CONFIG.method, BASE)
Z = INNER * torch.rand((10, 1, 8, 8), generator=torch.Generator().manual_seed(0)).mul(2).sub(1).sign()


def make(keep: Tensor | None = None, batch_size: int = 50, **changes: Any) -> Inverses:
    test = images().test
    everyone = torch.arange(len(test))
    settings = inverse_settings(CONFIG.method, BASE, **changes)
    kept = everyone if keep is None else keep
    return make_inverses(precise(), precise(), test, settings, Z, kept, batch_size=batch_size, seed=5)


def test_settings_of_a_universal_run() -> None:
    found = inverse_settings(METHODS["uiat"], PGD(eps=8 / 255, step=None, steps=20))
    assert found.attack == PGD(eps=8 / 255, step=None, steps=10)
    assert found.instance == InstanceInverse(eps=4 / 255, step=2 / 255, steps=5, beta=1.0)
    assert found.universal == UniversalInverse()


def test_settings_of_other_methods() -> None:
    base = PGD(eps=0.5, step=None, steps=20, norm="l2")
    instance = inverse_settings(METHODS["iat"], base)
    assert instance.instance == InstanceInverse()
    assert instance.universal == UniversalInverse()
    plug_in = inverse_settings(METHODS["n-fgsm-uiat"], base)
    assert plug_in.universal == UniversalInverse(beta=0.0)
    assert plug_in.instance.beta == 0
    for method in (METHODS["natural"], METHODS["trades"], METHODS["n-fgsm"], None):
        none = inverse_settings(method, base)
        assert none.instance == InstanceInverse(eps=0.25, step=0.125, steps=5, beta=1.0, norm="l2")
        assert none.universal == UniversalInverse(eps=0.25, step=0.25, beta=1.0, norm="l2")


def test_settings_on_demand() -> None:
    found = inverse_settings(METHODS["uiat"], BASE, eps=8 / 255, beta=0.5)
    assert found.universal == UniversalInverse(eps=8 / 255, step=8 / 255, beta=0.5)
    assert found.instance == InstanceInverse(eps=8 / 255, step=4 / 255, beta=0.5)
    for eps in (0.0, -0.1, float("nan")):
        with pytest.raises(UserError, match="the inverse radius"):
            inverse_settings(None, BASE, eps=eps)
    with pytest.raises(UserError, match="the inverse radius"):
        inverse_settings(None, PGD(eps=0.0))


def test_examples_stay_near_and_among_images() -> None:
    found = make()
    for kind in IMAGE_KINDS:
        assert 0 <= float(found.x[kind].min()) <= float(found.x[kind].max()) <= 1
        assert float((found.x[kind] - found.x["natural"]).abs().max()) <= INNER + 1e-6
    assert torch.equal(found.x["natural"], images().test.x.float() / 255)
    expected = (found.x["natural"] + Z[images().test.y]).clamp(0, 1)
    assert torch.equal(found.x["universal"], expected)
    assert not torch.equal(found.x["inverse"], found.x["natural"])


def test_losses_and_shares_are_those_of_a_plain_loop() -> None:
    found, model, lowered, right = (
        make(beta=0.0),
        precise(),
        dict.fromkeys(IMAGE_KINDS, 0),
        dict.fromkeys(IMAGE_KINDS, 0),
    )
    for place, y in enumerate(found.y):
        natural = float(F.cross_entropy(model(found.x["natural"][place, None]), y[None]))
        for kind in IMAGE_KINDS:
            logits = model(found.x[kind][place, None])
            lowered[kind] += float(F.cross_entropy(logits, y[None])) < natural - 1e-7
            right[kind] += bool(logits.argmax() == y)
    whole = found.table(images().test.classes)["overall"]
    assert whole["n"] == 120
    assert whole["accuracy"] == {kind: right[kind] / 120 for kind in IMAGE_KINDS}
    for loss in ("cross_entropy", "l_inv"):  # the same, as β = 0
        assert whole["lowered"][loss] == {
            kind: pytest.approx(lowered[kind] / 120, abs=0.01) for kind in IMAGE_KINDS[1:]
        }
    low, high = whole["lowered_interval95"]["cross_entropy"]["inverse"]
    assert (low, high) == wilson(round(120 * whole["lowered"]["cross_entropy"]["inverse"]), 120)


def test_classes_add_up() -> None:
    found = make().table(images().test.classes)
    assert list(found["classes"]) == list(images().test.classes)
    assert sum(row["n"] for row in found["classes"].values()) == found["overall"]["n"]
    for loss in ("cross_entropy", "l_inv"):
        for kind in IMAGE_KINDS[1:]:
            count = sum(row["n"] * row["lowered"][loss][kind] for row in found["classes"].values())
            assert count == pytest.approx(120 * found["overall"]["lowered"][loss][kind])


def test_the_inverse_loss_is_that_of_equation_4() -> None:
    found, model, test = make(), precise(), images().test
    x_adv = []
    for place in range(3):
        x, y = test.x[place, None].float() / 255, test.y[place, None]
        x_adv.append(SETTINGS.attack(model, x, y, SampleDraws(5, index=(place,))))
        features = [penultimate(model, at)[0] for at in (found.x["inverse"][place, None], x, x_adv[-1])]
        near, far = ((features[0] - other).abs().mean() for other in features[1:])
        cross_entropy = F.cross_entropy(model(found.x["inverse"][place, None]), y)
        assert float(found.losses["l_inv"]["inverse"][place]) == pytest.approx(
            float(cross_entropy + near - far), abs=1e-5
        )


def test_the_feature_term_is_least_at_the_image_itself() -> None:
    found = make()
    term = {kind: found.losses["l_inv"][kind] - found.losses["cross_entropy"][kind] for kind in IMAGE_KINDS}
    for kind in IMAGE_KINDS[1:]:
        assert bool((term[kind] >= term["natural"] - 1e-5).all())


def test_instance_wise_inverses_lower_the_loss_of_most() -> None:
    found = make().table(images().test.classes)["overall"]
    assert found["lowered"]["cross_entropy"]["inverse"] > 0.9
    assert found["accuracy"]["inverse"] >= found["accuracy"]["natural"]
    assert found["accuracy"]["natural"] > 0.5  # better than chance, else the test could not detect a difference


def test_batches_and_what_is_kept_change_no_example() -> None:
    whole, few = make(), make(torch.tensor([3, 77, 118]), batch_size=33)
    assert few.kept.tolist() == [3, 77, 118]
    for kind in IMAGE_KINDS:
        assert torch.allclose(few.x[kind], whole.x[kind][few.kept], atol=1e-5)
        assert torch.equal(few.correct[kind], whole.correct[kind])
