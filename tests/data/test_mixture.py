"""Batches of original and generated images: composition, orders, indices, shares."""

from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.support.calls import missing_facts
from uiat import data
from uiat.data.data_config import DataConfig, Generated
from uiat.data.images import Images
from uiat.data.loader import Loader, Mixture, Stream
from uiat.errors import UserError

ORIGINALS, MORE = 53, 131


def images(count: int, first: int, side: int = 8) -> Images:
    """Images whose pixels encode their index."""
    x = (torch.arange(count) + first).to(torch.uint8)[:, None, None, None].expand(count, 1, side, side)
    return Images(x.contiguous(), (torch.arange(count) + first) % 7, tuple("abcdefg"))


def loader(batch_size: int = 20, original: float = 0.3, **changes: object) -> Loader:
    more = images(MORE, ORIGINALS)
    return Loader(images(ORIGINALS, 0), batch_size, 3, generated=more, original=original, **changes)  # type: ignore[arg-type]


def indices(found: Loader, epochs: int) -> list[Tensor]:
    kept = []
    for epoch in range(1, epochs + 1):
        for _, batch in found.epoch(epoch):
            assert batch.index is not None
            kept.append(batch.index)
    return kept


@settings(max_examples=60)
@given(size=st.integers(4, 60), fraction=st.floats(0.02, 0.5), steps=st.integers(1, 80))
def test_a_stream_is_passes(size: int, fraction: float, steps: int) -> None:
    """Every sample once in each pass, no sample twice in a batch, and each step can be computed alone."""
    share = max(1, int(size * fraction))
    stream = Stream(size, share, 1, "order")
    batches = [stream.at(step) for step in range(steps)]
    assert all(len(batch) == len(batch.unique()) == share for batch in batches)
    flat = torch.cat(batches)
    for start in range(0, len(flat) - size + 1, size):
        assert flat[start : start + size].sort().values.tolist() == list(range(size))
    for step in {0, steps // 2, steps - 1}:
        assert torch.equal(Stream(size, share, 1, "order").at(step), batches[step])


def test_orders_differ_between_passes_seeds_and_parts() -> None:
    one = Stream(50, 10, 1, "a")
    passes = [torch.cat([one.at(5 * k + step) for step in range(5)]) for k in range(3)]
    others = [torch.cat([s.at(step) for step in range(5)]) for s in (Stream(50, 10, 2, "a"), Stream(50, 10, 1, "b"))]
    assert len({tuple(order.tolist()) for order in [*passes, *others]}) == 5


@pytest.mark.parametrize(
    ("batch_size", "original", "ours"), [(512, 0.3, 154), (512, 0.4, 205), (10, 0.3, 3), (10, 0.4, 4), (7, 0.5, 4)]
)
def test_every_batch_has_the_ratio(batch_size: int, original: float, ours: int) -> None:
    mixture = Mixture(5000, 9000, batch_size, original, 0)
    for step in range(60):
        index = mixture.at(step)
        assert len(index) == batch_size
        assert int((index < 5000).sum()) == ours
        assert 0 <= int(index.min()) <= int(index.max()) < 14_000


def test_shares_and_micro_batches_have_it_too() -> None:
    index = Mixture(5000, 9000, 512, 0.3, 0).at(3)
    for parts in (2, 4, 8):
        counts = [int((part < 5000).sum()) for part in index.tensor_split(parts)]
        assert max(counts) - min(counts) <= 1


def test_an_epoch_is_as_long_as_without() -> None:
    with_it, without = loader(), Loader(images(ORIGINALS, 0), 20, 3)
    assert with_it.steps_per_epoch == without.steps_per_epoch == 3
    assert [len(batch) for _, batch in with_it.epoch(1)] == [20, 20, 20]


def test_pixels_labels_and_indices_belong_together() -> None:
    for epoch in (1, 2, 9):
        for _, batch in loader(flip=True).epoch(epoch):
            assert batch.index is not None
            shown = (batch.x * 255).round().long()
            assert torch.equal(shown, batch.index[:, None, None, None].expand_as(shown))
            assert torch.equal(batch.y, batch.index % 7)


def test_all_samples_are_visited() -> None:
    flat = torch.cat(indices(loader(), 12))
    counts = flat.bincount(minlength=ORIGINALS + MORE)
    ours, more = counts[:ORIGINALS], counts[ORIGINALS:]
    assert int(ours.sum()) == 36 * 6
    assert int(ours.max() - ours.min()) <= 1
    assert int(more.max() - more.min()) <= 1


def test_a_start_within_an_epoch_changes_nothing() -> None:
    whole = list(loader(crop=1, flip=True).epoch(4))
    for start in range(1, 3):
        for (step, ours), (_, theirs) in zip(loader(crop=1, flip=True).epoch(4, start), whole[start:], strict=True):
            assert step == start
            assert torch.equal(ours.x, theirs.x)
            break


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_a_batch(world: int) -> None:
    whole = list(loader(crop=1, flip=True).epoch(2))
    shares = []
    for rank in range(world):
        names = {"rank": mock.Mock(return_value=rank), "world": mock.Mock(return_value=world)}
        with mock.patch.multiple("uiat.data.loader", **names):
            shares.append(list(loader(crop=1, flip=True).epoch(2)))
    for step, (_, batch) in enumerate(whole):
        parts = [share[step][1] for share in shares]
        for name in ("x", "y", "index"):
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(batch, name))


def test_generated_images_of_another_size_are_resized() -> None:
    found = Loader(images(ORIGINALS, 0), 20, 3, generated=images(MORE, ORIGINALS, side=16))
    _, batch = next(found.epoch(1))
    assert batch.index is not None
    assert torch.equal((batch.x[:, 0, 3, 3] * 255).round().long(), batch.index)


@pytest.mark.parametrize(
    ("batch_size", "original", "facts"),
    [
        (20, 0.01, "data.generated.original 0.01 20 original"),
        (20, 1.0, "data.generated.original 1 20 generated"),
        (100, 0.3, "100 '30 original' 53"),
        (100, 0.2, "100 '80 generated' 131"),
    ],
)
def test_invalid_mixtures(batch_size: int, original: float, facts: str) -> None:
    with pytest.raises(UserError) as error:
        loader(batch_size, original)
    assert missing_facts(str(error.value), facts) == []


@pytest.fixture(autouse=True)
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "store"))


def save(path: Path, **changes: object) -> Path:
    g = np.random.default_rng(0)
    arrays: dict[str, object] = {
        "image": g.integers(0, 256, (60, 8, 8), dtype=np.uint8),
        "label": np.arange(60) % 10,
        **changes,
    }
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def splits(path: Path, **changes: object) -> data.Splits:
    config = replace(DataConfig(subset=72, generated=Generated(str(path))), **changes)  # type: ignore[arg-type]
    return data.load_splits(config, training=True)


def test_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "more.npz")
    found = splits(path)
    assert found.generated is not None
    assert found.spec.num_samples == len(found.train) + 60
    assert found.train.spec.num_samples == len(found.train)
    np.testing.assert_array_equal(found.generated.x[:, 0].numpy(), np.load(path)["image"])
    assert data.load_splits(DataConfig(subset=72, generated=Generated(str(path)))).generated is None  # to evaluate
    monkeypatch.setenv("UIAT_DATA", str(tmp_path))
    inside = splits(Path("more.npz")).generated
    assert inside is not None
    assert len(inside) == 60


WRONG: dict[str, dict[str, object]] = {
    "float32 uint8": {"image": np.zeros((60, 8, 8), np.float32)},
    "'label 10' '10 classes'": {"label": np.arange(60) % 11},
    "'label -1' 0": {"label": np.arange(60) - 1},
    "'3 channels' 1": {"image": np.zeros((60, 8, 8, 3), np.uint8)},
    "'(59,)' 60": {"label": np.arange(59)},
    "'(60, 8, 8, 2)'": {"image": np.zeros((60, 8, 8, 2), np.uint8)},
    "images": {"image": np.zeros((0, 8, 8), np.uint8), "label": np.zeros(0, np.int64)},
}


@pytest.mark.parametrize("facts", WRONG)
def test_files_that_cannot_be_used(facts: str, tmp_path: Path) -> None:
    path = save(tmp_path / "more.npz", **WRONG[facts])
    with pytest.raises(UserError) as error:
        splits(path)
    assert missing_facts(str(error.value), f"{path} {facts}") == []


def test_a_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "data"))
    with pytest.raises(UserError, match=r"nowhere\.npz .*data/nowhere\.npz"):
        splits(Path("nowhere.npz"))
