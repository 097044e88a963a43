"""Stratified splits, resizing, and invalid images."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from uiat.data.images import Images, hold_out, resize, stratified
from uiat.errors import UserError
from uiat.types import DataSpec


def make(count: int = 12, channels: int = 3, height: int = 8, width: int = 8, classes: int = 3) -> Images:
    x = torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8)
    return Images(x, torch.arange(count) % classes, tuple(f"c{k}" for k in range(classes)))


def test_spec_and_take() -> None:
    images = make(12, 1, 9, 10, 4)
    assert images.spec == DataSpec(num_classes=4, num_samples=12, shape=(1, 9, 10))
    part = images.take(torch.tensor([5, 2]))
    assert len(part) == 2
    assert part.y.tolist() == [1, 2]
    assert torch.equal(part.x, images.x[[5, 2]])
    assert part.classes == images.classes


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"x": torch.zeros(12, 3, 8, 8)}, "must be uint8"),
        ({"x": torch.zeros(12, 8, 8, dtype=torch.uint8)}, "must be uint8 images"),
        ({"y": torch.zeros(12)}, "int64 labels"),
        ({"y": torch.zeros(12, 1, dtype=torch.int64)}, "int64 labels"),
        ({"y": torch.zeros(11, dtype=torch.int64)}, "12 images but 11 labels"),
        ({"x": torch.zeros(0, 3, 8, 8, dtype=torch.uint8), "y": torch.zeros(0, dtype=torch.int64)}, "no images"),
        ({"x": torch.zeros(12, 2, 8, 8, dtype=torch.uint8)}, "2 channels"),
        ({"x": torch.zeros(12, 3, 7, 8, dtype=torch.uint8)}, "7×8 pixels"),
        ({"x": torch.zeros(12, 3, 8, 7, dtype=torch.uint8)}, "8×7 pixels"),
        ({"y": torch.full((12,), 3)}, "label 3, outside 0…2"),
        ({"y": torch.full((12,), -1)}, "label -1, outside 0…2"),
        ({"classes": ("only",)}, "fewer than two"),
    ],
)
def test_check(changes: dict[str, Tensor], match: str) -> None:
    make().check("it")
    with pytest.raises(UserError, match=f"^the training set .*{match}"):
        replace(make(), **changes).check("the training set")  # type: ignore[arg-type]


labels = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(torch.tensor)


@settings(max_examples=150)
@given(labels, st.data(), st.integers(0, 5))
def test_stratified_count(y: Tensor, data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(0, len(y)))
    chosen, rest = stratified(y, count, seed)
    assert len(chosen) == count
    assert torch.cat([chosen, rest]).sort().values.tolist() == list(range(len(y)))
    assert chosen.tolist() == sorted(chosen.tolist())
    assert rest.tolist() == sorted(rest.tolist())
    again, _ = stratified(y, count, seed)
    assert torch.equal(chosen, again)
    have, took = y.bincount(minlength=7), y[chosen].bincount(minlength=7)
    quota = count * have / len(y)
    assert ((took - quota).abs() < 1 + 1e-6).all()  # the quota rule: rounded down or up, never further
    remainder = [int(count * n) % len(y) for n in have]
    up = [r for r, t, n in zip(remainder, took, have, strict=True) if int(t) > count * int(n) // len(y)]
    down = [r for r, t, n in zip(remainder, took, have, strict=True) if int(t) == count * int(n) // len(y)]
    assert not up or not down or min(up) >= max(down)


@settings(max_examples=50)
@given(labels, st.floats(0, 1))
def test_stratified_fraction(y: Tensor, fraction: float) -> None:
    chosen, _ = stratified(y, fraction, 0)
    assert len(chosen) == round(fraction * len(y))


def test_stratified_ties_go_to_lower_classes_and_seeds_differ() -> None:
    y = torch.arange(100) % 10
    assert y[stratified(y, 13, 0)[0]].bincount().tolist() == [2, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    assert not torch.equal(stratified(y, 50, 0)[0], stratified(y, 50, 1)[0])


def test_stratified_does_not_disturb_the_global_stream() -> None:
    torch.manual_seed(3)
    before = torch.rand(1)
    torch.manual_seed(3)
    stratified(torch.arange(9) % 3, 4, 0)
    assert torch.equal(before, torch.rand(1))


@pytest.mark.parametrize("wrong", [-1, 13, 1.1, -0.1, float("nan")])
def test_stratified_refuses(wrong: float) -> None:
    with pytest.raises(UserError, match=r"cannot choose .* of 12 samples"):
        stratified(torch.arange(12) % 3, wrong, 0)


def test_hold_out_parts_are_disjoint() -> None:
    images = make(30)
    rest, held = hold_out(images, 0.2)
    assert (len(rest), len(held)) == (24, 6)
    assert held.y.bincount().tolist() == [2, 2, 2]


def test_shrinking_averages_areas() -> None:
    images = make(5, 3, 16, 16)
    small = resize(images, 8)
    blocks = images.x.float().view(5, 3, 8, 2, 8, 2).mean((3, 5))
    assert small.x.dtype == torch.uint8
    assert torch.equal(small.x, blocks.round().to(torch.uint8))
    assert small.y is images.y


def test_growing_interpolates_linearly_and_keeps_flat_images() -> None:
    images = make(2, 1, 8, 8)
    for value in (0, 1, 128, 254, 255):
        flat = replace(images, x=torch.full_like(images.x, value))
        assert (resize(flat, 29).x == value).all()
    ramp = torch.arange(8, dtype=torch.uint8).mul(30).expand(2, 1, 8, 8)
    grown = resize(replace(images, x=ramp), 16).x[0, 0, 0].tolist()
    assert grown == [0, 8, 22, 38, 52, 68, 82, 98, 112, 128, 142, 158, 172, 188, 202, 210]


def test_oblong_images_shrink_one_way_and_grow_the_other() -> None:
    images = make(3, 1, 8, 24)
    rows = images.x[:, :, :1].expand(-1, -1, 8, -1)  # constant along the side that grows
    out = resize(replace(images, x=rows.contiguous()), 12).x
    want = rows[:, :, 0].float().view(3, 1, 12, 2).mean(3).round().to(torch.uint8)
    assert torch.equal(out, want[:, :, None].expand(-1, -1, 12, -1))


def test_resize_in_chunks_is_resize_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    images = make(11, 3, 12, 12)
    want = resize(images, 9).x
    monkeypatch.setattr("uiat.data.images._CHUNK", 4)
    assert torch.equal(resize(images, 9).x, want)
    assert resize(images, 12) is images


@pytest.mark.parametrize("size", [-1, 0, 7, 1025, 10**9])
def test_resize_refuses(size: int) -> None:
    with pytest.raises(UserError, match="cannot resize"):
        resize(make(), size)
