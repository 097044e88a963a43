"""The public CIFAR-10 ResNet-18 that pyautoattack ships, through the command line, against a plain loop."""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support import data_files as formats
from uiat import data
from uiat.cli import main
from uiat.data.images import Images
from uiat.models import ResNet
from uiat.rng import SampleDraws

EPS, STEP = 8 / 255, 2 / 255


def weights() -> Path:
    found = importlib.util.find_spec("pyautoattack")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "examples" / "model_test.pt"


def network(images: Images) -> nn.Module:
    model = ResNet().build(images.spec)
    model.load_state_dict(torch.load(weights(), weights_only=True, map_location="cpu"))
    return model.eval().requires_grad_(False)


def plain_loop(model: nn.Module, images: Images, steps: int) -> tuple[float, float]:
    """Natural and PGD accuracy, written out."""
    natural = robust = 0
    for places in torch.arange(len(images)).split(50):
        x, y = images.x[places].float() / 255, images.y[places]
        right = model(x).argmax(dim=1) == y
        x_adv: Tensor = (x + EPS * SampleDraws(0, index=tuple(places.tolist())).uniform("attack", x)).clamp(0, 1)
        for _ in range(steps):
            x_adv = x_adv.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(F.cross_entropy(model(x_adv), y, reduction="sum"), x_adv)
            x_adv = x + (x_adv + STEP * gradient.sign() - x).clamp(-EPS, EPS)
            x_adv = x_adv.clamp(0, 1)
        natural += int(right.sum())
        robust += int((right & (model(x_adv.detach()).argmax(dim=1) == y)).sum())
    return natural / len(images), robust / len(images)


def evaluate(folder: str, n: int, attack: str, out: Path) -> tuple[float, float]:
    flags = ["--n", str(n), "--sample", "first", "--attacks", "natural", attack, "--json", str(out)]
    args = ["evaluate", str(weights()), "--model", "resnet18", "--data", "cifar10", *flags]
    assert main([*args, "--data-dir", folder, "--data.no-download"]) == 0
    attacks = json.loads(out.read_text())["attacks"]
    return attacks["natural"]["accuracy"], attacks[attack]["accuracy"]


def test_agrees_with_a_plain_loop_on_small_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files in CIFAR-10's format; two thirds of the labels are the network's own predictions."""
    formats.cifar10(tmp_path, binary=True)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    records = np.frombuffer(path.read_bytes(), dtype=np.uint8).reshape(-1, 3073).copy()
    images = data.load_splits(data.DataConfig(name="cifar10", download=False), str(tmp_path)).test
    model = network(images)
    predicted = model(images.x[:4].float() / 255).argmax(dim=1).numpy()
    records[:4, 0] = predicted
    path.write_bytes(records.tobytes())
    images = data.load_splits(data.DataConfig(name="cifar10", download=False), str(tmp_path)).test.take(torch.arange(6))
    found = evaluate(str(tmp_path), 6, "pgd-2", tmp_path / "out.json")
    assert found == plain_loop(model, images, 2)
    assert found[0] >= 4 / 6
    assert "not normalised" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif("UIAT_DATA" not in os.environ, reason="needs the real CIFAR-10: set UIAT_DATA to its folder")
def test_agrees_with_a_plain_loop_on_the_real_images(tmp_path: Path) -> None:
    folder = os.environ["UIAT_DATA"]
    images = data.load_splits(data.DataConfig(name="cifar10", download=False), folder).test.take(torch.arange(200))
    found = evaluate(folder, 200, "pgd-20", tmp_path / "out.json")
    assert found == pytest.approx(plain_loop(network(images), images, 20), abs=0.005)
    assert found[0] > 0.9
