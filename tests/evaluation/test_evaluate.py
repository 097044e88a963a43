"""`uiat.evaluate`: a card for anyone's network and images."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import uiat
from uiat.attacks import PGD
from uiat.data import Splits
from uiat.errors import UserError
from uiat.evaluation.suite import run_suite

ATTACKS = ("natural", "pgd-5", "apgd-ce")


@pytest.mark.usefixtures("short_autoattack")
def test_it_gives_the_verdicts_of_the_suite(
    robust_run: Path, load: Callable[[Path], nn.Module], digits: Splits
) -> None:
    model, images = load(robust_run), digits.test.take(torch.arange(60))
    suite = run_suite(model, images, ATTACKS, PGD(eps=0.1, step=None), seed=2).attacks
    for x in (images.x, images.x.float() / 255):
        card = uiat.evaluate(model, x, images.y, ATTACKS, eps=0.1, seed=2)
        assert {name: entry["accuracy"] for name, entry in card["attacks"].items()} == {
            name: found.value for name, found in suite.items()
        }
        assert card["attacks"]["pgd-5"]["eps"] == 0.1
        assert set(card["attacks"]["natural"]["per_class"]) == {str(c) for c in images.y.unique().tolist()}
        assert card["environment"]["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]


def test_the_network_and_the_images_are_left_as_they_were() -> None:
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
    ("x", "y", "options", "sentence"),
    [
        (X * 2, Y, {}, "pixels lie outside"),
        (X - X / 0, Y, {}, "pixels lie outside"),
        (X.long(), Y, {}, "images are torch.int64: give floats in"),
        (X, Y.float(), {}, "labels are torch.float32"),
        (X, Y[:2], {}, r"labels are torch.int64 of shape \(2,\) for 4 images"),
        (X[:0], Y[:0], {}, "for 0 images"),
        (X, Y + 1, {}, "labels go from 1 to 3, but the network has 3 logits"),
        (X, Y, {"eps": 8}, r"did you mean 8/255\?"),
        (X, Y, {"batch_size": 0}, "the batch size is 0"),
        (X, Y, {"attacks": ("pdg-20",)}, "did you mean 'pgd-20'"),
    ],
)
def test_a_mistake_is_named(x: Tensor, y: Tensor, options: dict[str, object], sentence: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(UserError, match=sentence):
        uiat.evaluate(model, x, y, **options)  # type: ignore[arg-type]
