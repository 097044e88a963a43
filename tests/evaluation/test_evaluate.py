"""`uiat.evaluate`: natural and robust accuracy of a network in memory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import uiat
from uiat.attacks import PGD
from uiat.data import Splits
from uiat.errors import UserError
from uiat.evaluation.intervals import wilson
from uiat.evaluation.suite import run_suite

ATTACKS = ("natural", "pgd-5", "apgd-ce")


@pytest.mark.usefixtures("short_autoattack")
def test_it_gives_the_verdicts_of_the_suite(
    robust_run: Path, load: Callable[[Path], nn.Module], digits: Splits
) -> None:
    model, images = load(robust_run), digits.test.take(torch.arange(60))
    suite = run_suite(model, images, ATTACKS, PGD(eps=0.1, step=None), seed=2)
    for x in (images.x, images.x.float() / 255):
        result = uiat.evaluate(model, x, images.y, ATTACKS, eps=0.1, seed=2)
        assert list(result) == list(ATTACKS)
        for name, found in suite.items():
            assert torch.equal(result[name].correct, found.correct)
        assert result.natural == result["natural"].accuracy == suite["natural"].accuracy
        assert result["pgd-5"] is result["pgd-5", 0.1]


def test_the_result_as_a_card_and_as_text(robust_run: Path, load: Callable[[Path], nn.Module], digits: Splits) -> None:
    images = digits.test.take(torch.arange(60))
    result = uiat.evaluate(load(robust_run), images.x, images.y, ("pgd-5",), eps=8 / 255)
    card = json.loads(json.dumps(result.to_dict()))
    assert list(card) == ["schema", "attacks", "notices", "environment"]
    found, entry = result["pgd-5"], card["attacks"]["pgd-5"]
    right = int(found.correct.sum())
    assert (entry["accuracy"], entry["n"], entry["eps"]) == (found.accuracy, 60, 8 / 255)
    assert tuple(entry["interval95"]) == found.interval == wilson(right, 60)
    assert entry["per_class"] == found.per_class
    for label in images.y.unique().tolist():
        assert found.per_class[str(label)] == float(found.correct[images.y == label].double().mean())
    low, high = found.interval
    row = str(result).splitlines()[1]
    assert row.split() == ["pgd-5", "8/255", f"{found.accuracy:.2%}", f"[{low:.2%},", f"{high:.2%}]", "60"]
    for key in ("pgd-20", ("pgd-5", 0.1), "attacks"):
        with pytest.raises(KeyError, match="pgd-5"):
            result[key]


@pytest.mark.usefixtures("short_autoattack")
def test_several_radii_give_the_results_of_each(
    robust_run: Path, load: Callable[[Path], nn.Module], digits: Splits
) -> None:
    model, images, radii = load(robust_run), digits.test.take(torch.arange(40)), [0.05, 0.15]
    result = uiat.evaluate(model, images.x, images.y, ATTACKS, eps=radii)
    names = [(name, eps) for name in ATTACKS[1:] for eps in radii]
    assert list(result) == [("natural", 0.0), *names]
    for eps in radii:
        alone = uiat.evaluate(model, images.x, images.y, ATTACKS, eps=eps)
        assert torch.equal(result["natural"].correct, alone["natural"].correct)
        for name in ATTACKS[1:]:
            assert torch.equal(result[name, eps].correct, alone[name].correct)
            assert result[name, eps].setting == alone[name].setting
    assert "pgd-5" not in result  # ambiguous
    entries = result.to_dict()["attacks"]
    assert entries["natural"]["accuracy"] == result.natural
    assert [entry["eps"] for entry in entries["pgd-5"]] == radii
    assert list(uiat.evaluate(model, images.x, images.y, ("pgd-5",), eps=[0.1])) == [("pgd-5", 0.1)]


def test_the_network_and_the_images_are_unchanged() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = torch.rand(8, 1, 8, 8), torch.arange(8) % 3
    kept = x.clone()
    uiat.evaluate(model, x, y)
    assert model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert torch.equal(x, kept)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


X, Y = torch.rand(4, 1, 8, 8), torch.arange(4) % 3


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (X * 2, Y, {}, "pixels lie outside"),
        (X - X / 0, Y, {}, "pixels lie outside"),
        (X.long(), Y, {}, "images are torch.int64: give floats in"),
        (X, Y.float(), {}, "labels are torch.float32"),
        (X, Y[:2], {}, r"labels are torch.int64 of shape \(2,\) for 4 images"),
        (X[:0], Y[:0], {}, "for 0 images"),
        (X, Y + 1, {}, "labels go from 1 to 3, but the network has 3 logits"),
        (X, Y, {"eps": 8}, r"did you mean 8/255\?"),
        (X, Y, {"eps": [0.1, 8]}, r"did you mean 8/255\?"),
        (X, Y, {"eps": []}, "eps is empty"),
        (X, Y, {"batch_size": 0}, "batch_size is 0"),
        (X, Y, {"attacks": ("pdg-20",)}, "did you mean 'pgd-20'"),
    ],
)
def test_a_mistake_is_named(x: Tensor, y: Tensor, options: dict[str, object], message: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(UserError, match=message):
        uiat.evaluate(model, x, y, **options)  # type: ignore[arg-type]
