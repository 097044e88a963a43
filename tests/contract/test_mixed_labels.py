"""Mixed labels (CutMix): which methods take them, that they are used everywhere, and how the others say no."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.cli.calls import call, refused
from tests.contract.setting import DATA, build, network, samples
from uiat.attacks import PGD
from uiat.errors import UserError
from uiat.methods import IAT, METHODS, SAT
from uiat.methods.method import takes_mixed_labels
from uiat.targets import Momentum
from uiat.types import Batch, Clock

TAKE = ("natural", "sat", "trades", "iat", "rs-fgsm", "n-fgsm", "gradalign")
CLOCK = Clock(epoch=1, step=0, epochs=4)


def batch(mixed: torch.Tensor | None) -> Batch:
    x, y = samples()
    return Batch(x, y, torch.arange(len(y)), mixed=mixed)


def one_hot() -> torch.Tensor:
    return F.one_hot(samples()[1], DATA.num_classes).double()


def test_which_methods_take_them() -> None:
    assert tuple(name for name, method in METHODS.items() if takes_mixed_labels(method)) == TAKE
    assert not takes_mixed_labels(SAT(attack=PGD(loss="margin")))
    assert not takes_mixed_labels(IAT(momentum=Momentum()))
    assert not takes_mixed_labels(object())


@pytest.mark.parametrize("name", TAKE)
def test_shares_of_one_class_are_that_class(name: str) -> None:
    """All of the mass on y gives the loss and the gradients that y gives."""
    found = []
    for mixed in (None, one_hot()):
        model = network()
        loss = build(METHODS[name])(model, batch(mixed), CLOCK)
        loss.total.backward()
        found.append([loss.total.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for hard, soft in zip(*found, strict=True):
        torch.testing.assert_close(soft, hard, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", TAKE)
def test_cross_entropy_is_linear_in_the_shares(name: str) -> None:
    """The loss of a mixture is the mixture of losses to either class, at the same x̂ (and the same x̌)."""
    method, y = build(METHODS[name]), samples()[1]
    other = (y + 1) % 3
    share = torch.linspace(0.1, 0.9, len(y), dtype=torch.float64)[:, None]
    shares = share * one_hot() + (1 - share) * F.one_hot(other, DATA.num_classes)
    view = method.craft(network(), batch(shares), CLOCK)
    term = next(term.term for term in method.terms if term.name in ("ce", "ce_clean"))
    logits = view.clean if name in ("natural", "trades") else view.adversarial
    weights = share[:, 0]
    expected = weights * F.cross_entropy(logits, y, reduction="none")
    expected = expected + (1 - weights) * F.cross_entropy(logits, other, reduction="none")
    torch.testing.assert_close(term(view), expected.mean())


@pytest.mark.parametrize("name", [name for name in TAKE if name not in ("natural", "trades")])
def test_the_enemy_sees_both_classes(name: str) -> None:
    hard = build(METHODS[name]).craft(network(), batch(None), CLOCK).x_adv
    half = (one_hot() + F.one_hot((samples()[1] + 1) % 3, DATA.num_classes)) / 2
    assert not torch.equal(build(METHODS[name]).craft(network(), batch(half), CLOCK).x_adv, hard)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in TAKE])
def test_the_others_refuse_them(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs one class a sample"):
        build(METHODS[name])(network(), batch(one_hot()), CLOCK)
    out = tmp_path / "run"
    sentence = refused(capsys, "train", f"digits-resnet8-{name}", "--data.cutmix", "0.5", "--out", str(out))
    assert sentence.startswith("CutMix mixes labels (data.cutmix), and ")
    assert sentence.endswith("cut within a class with --data.cutmix-with class, or choose another method.")
    assert not out.exists()


def test_shares_of_a_wrong_shape() -> None:
    with pytest.raises(UserError, match="give a share of every class a sample"):
        build(METHODS["sat"])(network(), batch(one_hot()[:, :2]), CLOCK)


@pytest.mark.parametrize(
    ("method", "flags"),
    [("trades", ["--data.cutmix", "0.5"]), ("uiat", ["--data.cutmix", "0.5", "--data.cutmix-with", "class"])],
)
def test_a_run_with_all_of_it_goes_on_in_the_same_bits(
    method: str, flags: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--train.epochs", "2", "--data.subset", "150", "--model.width", "2", "--method.attack.steps", "1"]
    words = [f"digits-resnet8-{method}", *small, "--validate.steps", "1", "--data.cutout", "3", "--data.crop", "1"]
    words += ["--train.micro-batch", "20", *flags]
    assert call(capsys, "train", *words, "--out", str(tmp_path / "whole")).code == 0
    monkeypatch.setattr("uiat.engine.loop.anywhere", lambda *flags: [True, False])  # a stop after every step
    assert call(capsys, "train", *words, "--out", str(tmp_path / "stopped")).code == 143
    monkeypatch.undo()
    assert call(capsys, "train", "--resume", str(tmp_path / "stopped")).code == 0
    one, other = (tmp_path / name / "last.safetensors" for name in ("whole", "stopped"))
    assert one.read_bytes() == other.read_bytes()
