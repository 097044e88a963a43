"""Cutout and CutMix against slow, literal versions; what they do to labels; the same for any number of processes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from uiat.data.images import Images
from uiat.data.loader import Loader
from uiat.data.mixing import CutMix, Mixing, Windows, draw_cutmix, draw_cutout
from uiat.errors import UserError
from uiat.rng import generator
from uiat.types import Batch

SHAPE = (3, 9, 13)


def inside(windows: Windows, k: int, row: int, column: int) -> bool:
    within = windows.top[k] <= row < windows.bottom[k] and windows.left[k] <= column < windows.right[k]
    return bool(within)


def literal_cutmix(x: Tensor, cut: CutMix) -> Tensor:
    out = x.clone()
    for k in range(len(x)):
        for row in range(x.shape[2]):
            for column in range(x.shape[3]):
                if inside(cut.windows, k, row, column):
                    out[k, :, row, column] = x[cut.partner[k], :, row, column]
    return out


def images(count: int, classes: int = 3, shape: tuple[int, int, int] = SHAPE) -> Images:
    x = torch.randint(0, 256, (count, *shape), generator=generator(0, "pixels")).to(torch.uint8)
    return Images(x, torch.arange(count) % classes, tuple("abcdef"[:classes]))


@settings(max_examples=30)
@given(st.integers(2, 9), st.floats(0, 1), st.sampled_from(["any", "class"]), st.integers(0, 99))
def test_cutmix_is_its_literal_twin(count: int, probability: float, partner: str, seed: int) -> None:
    data = images(count)
    mixing = Mixing(cutmix=probability, partner=partner)  # type: ignore[arg-type]
    cut = draw_cutmix(data.y, mixing, SHAPE, generator(seed, "cutmix"))
    assert torch.equal(cut(data.x, data.x[cut.partner]), literal_cutmix(data.x, cut))
    y, shares = cut.labels(data.y, data.y[cut.partner], SHAPE, 3)
    for k in range(count):
        pixels = [(row, column) for row in range(SHAPE[1]) for column in range(SHAPE[2])]
        owners = [int(data.y[cut.partner[k] if inside(cut.windows, k, *at) else k]) for at in pixels]
        expected = [owners.count(c) / len(owners) for c in range(3)]
        assert shares[k].tolist() == pytest.approx(expected, abs=1e-6)
        assert shares[k, y[k]] == shares[k].max()
    assert sorted(cut.partner.tolist()) == list(range(count))
    if partner == "class":
        assert torch.equal(data.y[cut.partner], data.y)


def test_a_partner_of_the_same_class_is_another_image_where_there_is_one() -> None:
    y = torch.tensor([0, 0, 1, 2, 2, 2])
    seen = set()
    for seed in range(20):
        cut = draw_cutmix(y, Mixing(cutmix=1, partner="class"), SHAPE, generator(seed, "cutmix"))
        assert int(cut.partner[2]) == 2
        assert all(int(cut.partner[k]) != k for k in (0, 1, 3, 4, 5))
        seen.add(tuple(cut.partner.tolist()))
    assert len(seen) == 2  # the two cycles of three


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 30), st.integers(0, 99))
def test_cutout_blackens_a_square(count: int, side: int, seed: int) -> None:
    x = torch.full((count, *SHAPE), 9, dtype=torch.uint8)
    windows = draw_cutout(count, side, SHAPE, generator(seed, "cutout"))
    out = windows.blacken(x)
    for k in range(count):
        for row in range(SHAPE[1]):
            for column in range(SHAPE[2]):
                assert (out[k, :, row, column] == (0 if inside(windows, k, row, column) else 9)).all()
        assert 1 <= int((out[k, 0] == 0).sum()) <= side * side


def test_windows_reach_everywhere_and_fill_uniform_shares() -> None:
    y = torch.zeros(4000, dtype=torch.int64)
    cut = draw_cutmix(y, Mixing(cutmix=0.5), (1, 32, 32), generator(0, "cutmix"))
    mask = cut.windows.mask(32, 32).float()
    share = mask.mean((1, 2, 3))
    assert 0.44 < float((share > 0).float().mean()) < 0.52  # half of them, but for windows of no pixel
    assert mask.mean(0).min() > 0.05
    whole = draw_cutmix(y, Mixing(cutmix=1), (1, 32, 32), generator(0, "cutmix")).windows
    assert float((whole.bottom - whole.top).float().max()) == 32
    squares = draw_cutout(4000, 8, (1, 32, 32), generator(0, "cutout")).mask(32, 32).float().mean(0)
    assert squares.min() > 0.01


def batches(mixing: Mixing, **options: object) -> list[Batch]:
    loader = Loader(images(24), 8, seed=3, mixing=mixing, **options)  # type: ignore[arg-type]
    return [batch for _, batch in loader.epoch(2)]


def test_off_by_default() -> None:
    assert Mixing() == Mixing(0, 0.0, "any")
    for plain, off in zip(batches(Mixing()), batches(Mixing(partner="class")), strict=True):
        assert torch.equal(plain.x, off.x)
        assert plain.mixed is None
        assert plain.label is plain.y


def test_the_loader_mixes_augmented_images() -> None:
    """Both images of a mixture are cropped and mirrored as they would be without it."""
    plain, mixed = batches(Mixing(), crop=2, flip=True), batches(Mixing(cutmix=1), crop=2, flip=True)
    for step, (one, other) in enumerate(zip(plain, mixed, strict=True)):
        cut = draw_cutmix(one.y, Mixing(cutmix=1), SHAPE, generator(3, "cutmix", 2, step))
        assert torch.equal(other.x, literal_cutmix(one.x, cut))
        assert other.mixed is not None
        assert torch.allclose(other.mixed.sum(1), torch.ones(8))
        assert torch.equal(other.index, one.index)  # type: ignore[arg-type]
        assert other.label is other.mixed
    assert any(not torch.equal(one.y, other.y) for one, other in zip(plain, mixed, strict=True))


def test_within_a_class_labels_stay() -> None:
    for plain, mixed in zip(batches(Mixing()), batches(Mixing(cutmix=1, partner="class")), strict=True):
        assert mixed.mixed is None
        assert torch.equal(mixed.y, plain.y)
        assert not torch.equal(mixed.x, plain.x)


def test_cutout_in_the_loader() -> None:
    for step, (plain, cut) in enumerate(zip(batches(Mixing()), batches(Mixing(cutout=5)), strict=True)):
        windows = draw_cutout(8, 5, SHAPE, generator(3, "cutout", 2, step))
        assert torch.equal(cut.x, windows.blacken(plain.x))


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_one_batch(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mixing = Mixing(cutout=4, cutmix=0.8)
    whole = batches(mixing, crop=2, flip=True)
    monkeypatch.setattr("uiat.data.loader.world", lambda: world)
    shares = []
    for rank in range(world):
        monkeypatch.setattr("uiat.data.loader.rank", lambda rank=rank: rank)
        shares.append(batches(mixing, crop=2, flip=True))
    for step, batch in enumerate(whole):
        for name in ("x", "y", "mixed", "index"):
            joined = torch.cat([getattr(share[step], name) for share in shares])
            assert torch.equal(joined, getattr(batch, name))


def test_micro_batches_carry_their_labels() -> None:
    batch = batches(Mixing(cutmix=1))[0]
    parts = batch.split(3)
    assert batch.mixed is not None
    assert torch.equal(torch.cat([part.label for part in parts]), batch.mixed)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cutout": -1}, "data.cutout is -1: give the side"),
        ({"cutmix": 1.5}, "data.cutmix is 1.5: give a probability"),
        ({"cutmix": float("nan")}, "data.cutmix is nan"),
    ],
)
def test_mistakes(options: dict[str, float], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Mixing(**options)  # type: ignore[arg-type]
