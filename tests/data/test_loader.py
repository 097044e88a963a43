"""Order, batches, restart and augmentation of the loader; prefetching."""

import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.data.test_images import make
from uiat.data.augment import Augmentation, draw
from uiat.data.loader import Loader, plain, prefetch
from uiat.errors import UserError
from uiat.rng import generator
from uiat.types import Batch

sizes = st.integers(1, 40)
batch_sizes = st.integers(2, 17)


def equal(one: Batch, other: Batch) -> bool:
    assert one.index is not None
    assert other.index is not None
    return torch.equal(one.x, other.x) and torch.equal(one.y, other.y) and torch.equal(one.index, other.index)


def indices(loader: Loader, epoch: int) -> list[int]:
    return [int(i) for _, batch in loader.epoch(epoch) if batch.index is not None for i in batch.index]


@settings(max_examples=80)
@given(sizes, batch_sizes, st.integers(0, 3), st.integers(1, 3))
def test_every_sample_once_and_no_batch_of_one(count: int, batch_size: int, seed: int, epoch: int) -> None:
    images = make(count)
    loader = Loader(images, batch_size, seed)
    batches = list(loader.epoch(epoch))
    assert [step for step, _ in batches] == list(range(loader.steps_per_epoch))
    assert sorted(indices(loader, epoch)) == list(range(count))
    lengths = [len(batch) for _, batch in batches]
    assert count == 1 or 1 not in lengths
    assert all(length == batch_size for length in lengths[:-1])
    assert lengths[-1] <= batch_size + 1
    for _, batch in batches:
        assert batch.index is not None
        assert batch.x.dtype == torch.float32
        assert torch.equal(batch.x, images.x[batch.index].float() / 255)
        assert torch.equal(batch.y, images.y[batch.index])


@settings(max_examples=40)
@given(sizes, batch_sizes, st.data())
def test_restart_gives_the_rest_of_the_epoch(count: int, batch_size: int, data: st.DataObject) -> None:
    loader = Loader(make(count), batch_size, seed=1, crop=2, flip=True)
    start = data.draw(st.integers(0, loader.steps_per_epoch))
    whole, rest = list(loader.epoch(5)), list(loader.epoch(5, start))
    assert [step for step, _ in rest] == [step for step, _ in whole[start:]]
    assert all(equal(a, b) for (_, a), (_, b) in zip(whole[start:], rest, strict=True))


def test_batch_size_one_is_taken_at_its_word() -> None:
    loader = Loader(make(5), 1, 0)
    assert loader.steps_per_epoch == 5
    assert [len(batch) for _, batch in loader.epoch(1)] == [1] * 5


def test_epochs_and_seeds_differ_and_repeat() -> None:
    images = make(64)
    loader = Loader(images, 8, 0)
    assert indices(loader, 1) != indices(loader, 2)
    assert indices(loader, 1) == indices(loader, 1)
    assert indices(loader, 1) != indices(Loader(images, 8, 1), 1)
    assert indices(loader, 1) == indices(Loader(images, 16, 0, crop=3, flip=True), 1)


def test_augmentation_differs_by_epoch_and_step() -> None:
    images = make(64)
    loader = Loader(images, 32, 0, crop=3, flip=True)
    first, second = (batch for _, batch in loader.epoch(1))
    one = draw(32, 3, True, generator(0, "augment", 1, 0))
    two = draw(32, 3, True, generator(0, "augment", 1, 1))
    assert not torch.equal(one.top, two.top)
    for batch, augmentation in ((first, one), (second, two)):
        assert batch.index is not None
        assert torch.equal(batch.x, literal(images.x[batch.index], augmentation, 3).float() / 255)


def literal(x: Tensor, augmentation: Augmentation, padding: int) -> Tensor:
    """Crop and mirror image by image, pixel by pixel: the reference for the batched gather."""
    count, channels, height, width = x.shape
    out = torch.zeros_like(x)
    for i in range(count):
        top, left = int(augmentation.top[i]) - padding, int(augmentation.left[i]) - padding
        for row in range(height):
            for column in range(width):
                r, c = row + top, column + left
                inside = 0 <= r < height and 0 <= c < width
                at = width - 1 - column if augmentation.flip[i] else column
                for channel in range(channels):
                    out[i, channel, row, at] = x[i, channel, r, c] if inside else 0
    return out


@settings(max_examples=25)
@given(
    st.integers(1, 4),
    st.sampled_from([1, 3]),
    st.integers(8, 10),
    st.integers(8, 10),
    st.integers(0, 5),
    st.booleans(),
    st.integers(0, 99),
)
def test_augmentation_is_its_literal_twin(
    count: int, channels: int, height: int, width: int, padding: int, flip: bool, seed: int
) -> None:
    x = make(count, channels, height, width).x
    augmentation = draw(count, padding, flip, generator(seed, "augment"))
    assert torch.equal(augmentation(x, padding), literal(x, augmentation, padding))


def test_draws_are_in_range_uniform_and_flip_does_not_move_crops() -> None:
    with_flip, without = (draw(20_000, 4, flip, generator(0, "augment")) for flip in (True, False))
    assert torch.equal(with_flip.top, without.top)
    assert torch.equal(with_flip.left, without.left)
    assert not without.flip.any()
    assert abs(float(with_flip.flip.float().mean()) - 0.5) < 0.02
    for offsets in (with_flip.top, with_flip.left):
        assert (offsets.bincount(minlength=9) / 20_000 - 1 / 9).abs().max() < 0.01
    assert not torch.equal(with_flip.top, with_flip.left)


def test_flip_alone_mirrors_half() -> None:
    images = make(64)
    ((_, batch),) = Loader(images, 64, 0, flip=True).epoch(1)
    assert batch.index is not None
    original = images.x[batch.index].float() / 255
    kept = (batch.x == original).flatten(1).all(1)
    mirrored = (batch.x == original.flip(3)).flatten(1).all(1)
    assert (kept ^ mirrored).all()
    assert 10 < int(kept.sum()) < 54


def test_loader_leaves_images_and_global_stream_alone() -> None:
    images = make(20)
    before = images.x.clone()
    torch.manual_seed(0)
    want = torch.rand(1)
    torch.manual_seed(0)
    for _, batch in Loader(images, 4, 0, crop=2, flip=True).epoch(1):
        batch.x.zero_()
        batch.y.zero_()
    assert torch.equal(torch.rand(1), want)
    assert torch.equal(images.x, before)
    for batch in plain(images, 7):
        batch.x.zero_()
    assert torch.equal(images.x, before)


@settings(max_examples=30)
@given(sizes, st.integers(1, 17))
def test_plain_is_everything_in_order(count: int, batch_size: int) -> None:
    images = make(count)
    batches = list(plain(images, batch_size))
    assert torch.equal(torch.cat([batch.x for batch in batches]), images.x.float() / 255)
    assert torch.equal(torch.cat([batch.y for batch in batches]), images.y)
    index = [batch.index for batch in batches if batch.index is not None]
    assert torch.cat(index).tolist() == list(range(count))


def test_full_range_of_bytes_is_exactly_zero_to_one() -> None:
    x = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(2, 1, 16, 16)
    images = make(2)
    (batch,) = plain(type(images)(x, images.y, images.classes), 2)
    assert float(batch.x.min()) == 0.0
    assert float(batch.x.max()) == 1.0
    assert torch.equal((batch.x * 255).round().to(torch.uint8), x)


@pytest.mark.parametrize("crop", [-1, 8, 100])
def test_wrong_crop(crop: int) -> None:
    with pytest.raises(UserError, match=f"data.crop is {crop}: give a padding from 0"):
        Loader(make(), 4, 0, crop=crop)


@pytest.mark.parametrize("batch_size", [0, -4])
def test_wrong_batch_size(batch_size: int) -> None:
    with pytest.raises(UserError, match="batch size"):
        Loader(make(), batch_size, 0)
    with pytest.raises(UserError, match="batch size"):
        next(plain(make(), batch_size))


def test_empty_set() -> None:
    with pytest.raises(UserError, match="has no images"):
        Loader(make(3).take(torch.tensor([], dtype=torch.int64)), 4, 0)
    assert not list(plain(make(3).take(torch.tensor([], dtype=torch.int64)), 4))


@given(st.lists(st.integers()))
def test_prefetch_yields_the_same(items: list[int]) -> None:
    assert list(prefetch(iter(items))) == items


def test_prefetch_asks_for_the_next_before_it_is_wanted() -> None:
    made: list[int] = []
    second = threading.Event()

    def source() -> Iterator[int]:
        for k in range(3):
            made.append(k)
            if k == 1:
                second.set()
            yield k

    found = prefetch(source())
    assert next(found) == 0
    assert second.wait(5)
    assert made[:2] == [0, 1]
    assert list(found) == [1, 2]


def test_a_mistake_of_the_source_is_raised_at_its_place() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    found = prefetch(source())
    assert next(found) == 1
    with pytest.raises(ValueError, match="broken"):
        next(found)


def test_an_end_in_the_middle_leaves_no_thread() -> None:
    found = prefetch(iter(range(100)))
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("next batch")]
