"""The universal z: read from a run, or computed for given weights, which do not change."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.support.runs import load_checkpoint
from tests.support.uiat_run import CONFIG, EPS, INNER, images, network, precise, trained
from uiat.attacks import PGD
from uiat.attacks.ascent import GAUSSIAN
from uiat.errors import UserError
from uiat.evaluation.inverses import inverse_settings, make_z, read_z
from uiat.rng import generator
from uiat.runs.run_folder import RunFolder
from uiat.targets.universal import add_clipped

SETTINGS = inverse_settings(CONFIG.method, PGD(eps=EPS, step=None, steps=20))
PLAIN = replace(
    SETTINGS, instance=replace(SETTINGS.instance, beta=0.0), universal=replace(SETTINGS.universal, beta=0.0)
)


@pytest.fixture
def copy(tmp_path: Path) -> RunFolder:
    return RunFolder.open(shutil.copytree(trained().path, tmp_path / "run"))


def test_it_is_the_checkpoints() -> None:
    found = read_z(trained())
    assert found is not None
    saved = load_checkpoint(trained())["method"]
    (name,) = (name for name in saved if name.endswith("z"))
    assert torch.equal(found.z, saved[name])
    assert float(found.z.abs().max()) == pytest.approx(INNER)
    assert found.source == f"read from the checkpoint of the run, after epoch {CONFIG.train.epochs}"


def test_a_run_that_was_stopped_within_an_epoch(copy: RunFolder) -> None:
    torch.save({**load_checkpoint(copy), "epoch": 3, "step": 2}, copy.checkpoint)
    found = read_z(copy)
    assert found is not None
    assert found.source.endswith("after step 2 of epoch 3")


def test_no_z_and_no_checkpoint(copy: RunFolder) -> None:
    torch.save({**load_checkpoint(copy), "method": {}}, copy.checkpoint)
    assert read_z(copy) is None
    copy.checkpoint.unlink()
    copy.previous.unlink()
    assert read_z(copy) is None


def test_a_damaged_checkpoint_has_one_before_it(copy: RunFolder) -> None:
    copy.checkpoint.write_bytes(b"damaged")
    found = read_z(copy)
    assert found is not None
    assert found.source == f"read from the checkpoint of the run, after epoch {CONFIG.train.epochs - 1}"


@pytest.mark.parametrize("content", [b"", b"damaged", "not a dictionary"])
def test_a_damaged_checkpoint(content: bytes | str, copy: RunFolder) -> None:
    if isinstance(content, str):
        torch.save(content, copy.checkpoint)
    else:
        copy.checkpoint.write_bytes(content)
    copy.previous.unlink()
    with pytest.raises(UserError, match="--weights best"):
        read_z(copy)


def test_one_step_is_that_of_a_loop_over_classes() -> None:
    model, train = precise(), images().train.take(torch.arange(60))
    found = make_z(model, train, PLAIN, passes=1, count=60, seed=2)
    start = GAUSSIAN * torch.randn((10, 1, 8, 8), generator=generator(2, "z"))
    for label in range(10):
        z = start[label].clone().requires_grad_()
        loss = torch.zeros(())
        for x in train.x[train.y == label].float() / 255:
            loss = loss + F.cross_entropy(model((x + z).clamp(0, 1)[None]), torch.tensor([label]))
        (gradient,) = torch.autograd.grad(loss, z)
        expected = (z - INNER * gradient.sign()).clamp(-INNER, INNER)
        away = gradient.abs() > 1e-6  # where the sign is not a matter of rounding
        assert torch.equal(found.z[label][away], expected[away])
    assert found.source == "computed for these weights, in 1 pass over 60 training images"


def test_it_lowers_the_loss_of_most_and_leaves_the_weights_alone() -> None:
    model, train = network(), images().train
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = make_z(model, train, SETTINGS, passes=2, count=300)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert float(found.z.abs().max()) <= INNER + 1e-6
    assert found.source.endswith("in 2 passes over 300 training images")
    x, y = images().test.x.float() / 255, images().test.y
    with torch.no_grad():
        natural, helped = (F.cross_entropy(model(at), y, reduction="none") for at in (x, add_clipped(x, found.z, y)))
    assert float((helped < natural).double().mean()) > 0.7


@pytest.mark.parametrize(("passes", "count", "flag"), [(0, 10, "--passes is 0"), (1, 0, "--z-images is 0")])
def test_bad_numbers(passes: int, count: int, flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        make_z(network(), images().train, SETTINGS, passes=passes, count=count)
