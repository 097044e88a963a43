"""Rotation, Cutout and CutMix against slow, literal versions; the same for any number of processes; a resumed run."""

from math import cos, floor, radians, sin
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from tests.support.calls import call
from uiat.data.augment import Rotation, Windows, draw_cutmix, draw_cutout, draw_rotation
from uiat.data.images import Images
from uiat.data.loader import Loader
from uiat.rng import generator
from uiat.types import Batch

SHAPE = (3, 9, 13)


def inside(windows: Windows, k: int, row: int, column: int) -> bool:
    within = windows.top[k] <= row < windows.bottom[k] and windows.left[k] <= column < windows.right[k]
    return bool(within)


def literal_cutmix(x: Tensor, windows: Windows, partner: Tensor) -> Tensor:
    out = x.clone()
    for k in range(len(x)):
        for row in range(x.shape[2]):
            for column in range(x.shape[3]):
                if inside(windows, k, row, column):
                    out[k, :, row, column] = x[partner[k], :, row, column]
    return out


def source(degrees: float, row: int, column: int, height: int, width: int) -> tuple[float, float]:
    """Where the centre of a pixel was before the image was turned counter-clockwise."""
    x, y = column + 0.5 - width / 2, row + 0.5 - height / 2
    turn = radians(degrees)
    return sin(turn) * x + cos(turn) * y + height / 2, cos(turn) * x - sin(turn) * y + width / 2


def literal_rotation(x: Tensor, degrees: list[float]) -> Tensor:
    out, (height, width) = torch.zeros_like(x), x.shape[2:]
    for k, angle in enumerate(degrees):
        for row in range(height):
            for column in range(width):
                above, left = source(angle, row, column, height, width)
                if 0 <= above < height and 0 <= left < width:
                    out[k, :, row, column] = x[k, :, floor(above), floor(left)]
    return out


def images(count: int, classes: int = 3, shape: tuple[int, int, int] = SHAPE) -> Images:
    x = torch.randint(0, 256, (count, *shape), generator=generator(0, "pixels")).to(torch.uint8)
    return Images(x, torch.arange(count) % classes, tuple("abcdef"[:classes]))


@settings(max_examples=30)
@given(st.integers(2, 9), st.floats(0, 1), st.integers(0, 99))
def test_cutmix_is_its_literal_twin(count: int, probability: float, seed: int) -> None:
    data = images(count)
    windows, partner = draw_cutmix(data.y, probability, SHAPE, generator(seed, "cutmix"))
    assert torch.equal(windows.fill(data.x, data.x[partner]), literal_cutmix(data.x, windows, partner))
    assert sorted(partner.tolist()) == list(range(count))
    assert torch.equal(data.y[partner], data.y)


def test_a_partner_is_another_image_of_the_class_where_there_is_one() -> None:
    y = torch.tensor([0, 0, 1, 2, 2, 2])
    seen = set()
    for seed in range(20):
        _, partner = draw_cutmix(y, 1.0, SHAPE, generator(seed, "cutmix"))
        assert int(partner[2]) == 2
        assert all(int(partner[k]) != k for k in (0, 1, 3, 4, 5))
        seen.add(tuple(partner.tolist()))
    assert len(seen) == 2  # the two cycles of three


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 30), st.integers(0, 99))
def test_cutout_blackens_a_square(count: int, side: int, seed: int) -> None:
    x = torch.full((count, *SHAPE), 9, dtype=torch.uint8)
    windows = draw_cutout(count, side, SHAPE, generator(seed, "cutout"))
    out = windows.fill(x, 0)
    assert out.dtype == torch.uint8
    for k in range(count):
        for row in range(SHAPE[1]):
            for column in range(SHAPE[2]):
                assert (out[k, :, row, column] == (0 if inside(windows, k, row, column) else 9)).all()
        assert 1 <= int((out[k, 0] == 0).sum()) <= side * side


@settings(max_examples=30)
@given(st.integers(1, 5), st.floats(0.1, 180), st.integers(0, 99))
def test_rotation_is_its_literal_twin(count: int, degrees: float, seed: int) -> None:
    x = images(count).x
    drawn = draw_rotation(count, degrees, generator(seed, "rotation"))
    angles = torch.rad2deg(drawn.angle)
    assert angles.abs().max() <= degrees
    assert torch.equal(drawn(x), literal_rotation(x, angles.tolist()))


@pytest.mark.parametrize("degrees", [-15.0, -3.3, 0.0, 7.7, 15.0, 90.0])
def test_rotation_is_pillows(degrees: float) -> None:
    """torchvision's RandomRotation turns an image with Pillow's `rotate`, which counts in steps of 2**-16."""
    x = images(1, shape=(3, 32, 32)).x
    found = Rotation(torch.tensor([radians(degrees)], dtype=torch.float64))(x)[0]
    turned = Image.fromarray(x[0].permute(1, 2, 0).numpy()).rotate(degrees, Image.Resampling.NEAREST)
    other = torch.from_numpy(np.array(turned)).permute(2, 0, 1)
    places = [source(degrees, row, column, 32, 32) for row in range(32) for column in range(32)]
    near_an_edge = torch.tensor([any(abs(c - round(c)) < 1e-3 for c in place) for place in places]).view(32, 32)
    assert ((found == other) | near_an_edge).all()
    assert near_an_edge.float().mean() < 0.1


def test_angles_are_uniform() -> None:
    angles = torch.rad2deg(draw_rotation(4000, 15.0, generator(0, "rotation")).angle)
    assert -15 <= angles.min() < -14.9
    assert 14.9 < angles.max() <= 15
    counts = torch.histc(angles, 4, -15, 15)
    assert (counts - 1000).abs().max() < 5 * (4000 * 3 / 16) ** 0.5  # five standard deviations


def test_windows_reach_everywhere_and_fill_uniform_shares() -> None:
    y = torch.zeros(4000, dtype=torch.int64)
    windows, _ = draw_cutmix(y, 0.5, (1, 32, 32), generator(0, "cutmix"))
    mask = windows.mask(32, 32).float()
    share = mask.mean((1, 2, 3))
    assert 0.44 < float((share > 0).float().mean()) < 0.52  # half of them, but for windows of no pixel
    assert mask.mean(0).min() > 0.05
    whole, _ = draw_cutmix(y, 1.0, (1, 32, 32), generator(0, "cutmix"))
    assert float((whole.bottom - whole.top).float().max()) == 32
    squares = draw_cutout(4000, 8, (1, 32, 32), generator(0, "cutout")).mask(32, 32).float().mean(0)
    assert squares.min() > 0.01


def batches(**options: object) -> list[Batch]:
    loader = Loader(images(24), 8, seed=3, **options)  # type: ignore[arg-type]
    return [batch for _, batch in loader.epoch(2)]


def test_the_loader_mixes_augmented_images_within_a_class() -> None:
    """Both images are cropped and mirrored as without CutMix, and labels are unchanged."""
    plain, mixed = batches(crop=2, flip=True), batches(cutmix=1.0, crop=2, flip=True)
    for step, (one, other) in enumerate(zip(plain, mixed, strict=True)):
        cut = draw_cutmix(one.y, 1.0, SHAPE, generator(3, "cutmix", 2, step))
        assert torch.equal(other.x, literal_cutmix(one.x, *cut))
        assert not torch.equal(other.x, one.x)
        assert torch.equal(other.y, one.y)
        assert torch.equal(other.index, one.index)  # type: ignore[arg-type]


def test_rotation_in_the_loader_moves_no_other_draw() -> None:
    """Images are rotated after crop and mirroring, with a separate random stream; CutMix fills from rotated images."""
    common = {"crop": 2, "flip": True}
    runs = (batches(**common, **options) for options in ({}, {"rotation": 15.0}, {"rotation": 15.0, "cutmix": 1.0}))
    for step, (plain, rotated, mixed) in enumerate(zip(*runs, strict=True)):
        drawn = draw_rotation(8, 15.0, generator(3, "rotation", 2, step))
        assert torch.equal(rotated.x, drawn(plain.x))
        assert not torch.equal(rotated.x, plain.x)
        cut = draw_cutmix(plain.y, 1.0, SHAPE, generator(3, "cutmix", 2, step))
        assert torch.equal(mixed.x, literal_cutmix(rotated.x, *cut))


def test_cutout_in_the_loader() -> None:
    for step, (plain, cut) in enumerate(zip(batches(), batches(cutout=5), strict=True)):
        windows = draw_cutout(8, 5, SHAPE, generator(3, "cutout", 2, step))
        assert torch.equal(cut.x, windows.fill(plain.x, 0))


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_one_batch(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"cutout": 4, "cutmix": 0.8, "crop": 2, "flip": True, "rotation": 15.0}
    whole = batches(**options)
    monkeypatch.setattr("uiat.data.loader.world", lambda: world)
    shares = []
    for rank in range(world):
        monkeypatch.setattr("uiat.data.loader.rank", lambda rank=rank: rank)
        shares.append(batches(**options))
    for step, batch in enumerate(whole):
        for name in ("x", "y", "index"):
            joined = torch.cat([getattr(share[step], name) for share in shares])
            assert torch.equal(joined, getattr(batch, name))


def test_a_run_with_all_augmentations_resumes_in_the_same_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["--train.epochs", "2", "--data.subset", "150", "--model.width", "2", "--method.attack.steps", "1"]
    args = ["digits-resnet8-uiat", *small, "--validate.steps", "1", "--data.cutout", "3", "--data.crop", "1"]
    args += ["--train.micro-batch", "20", "--data.cutmix", "0.5", "--data.rotation", "15"]
    assert call(capsys, "train", *args, "--out", str(tmp_path / "whole")).code == 0
    monkeypatch.setattr("uiat.engine.loop.any_rank", lambda *flags: [True, False])  # a stop after every step
    assert call(capsys, "train", *args, "--out", str(tmp_path / "stopped")).code == 143
    monkeypatch.undo()
    assert call(capsys, "train", "--resume", str(tmp_path / "stopped")).code == 0
    one, other = (tmp_path / name / "last.safetensors" for name in ("whole", "stopped"))
    assert one.read_bytes() == other.read_bytes()
