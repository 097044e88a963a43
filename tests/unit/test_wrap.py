"""Wrappers for custom data sets and networks."""

import copy
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from tests.support.networks import NormedLeNet
from uiat import UIAT, Batch, Clock, DataSpec, Normalized, UserError, evaluate, indexed, logits_of
from uiat.models import ResNet, penultimate
from uiat.models.fast import speed_up
from uiat.models.networks import Normalize

X = torch.rand(11, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(11) % 10


class Dicts(Dataset[dict[str, Any]]):
    """A data set with items like those of Hugging Face."""

    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": X[index], "label": int(Y[index])}


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_keeps_its_index_however_it_is_loaded(workers: int) -> None:
    data = indexed(TensorDataset(X, Y))
    assert len(data) == len(Y)
    seen = []
    for index, x, y in DataLoader(data, batch_size=4, shuffle=True, num_workers=workers):
        assert index.dtype == torch.int64
        assert torch.equal(x, X[index])
        assert torch.equal(y, Y[index])
        seen += index.tolist()
    assert sorted(seen) == list(range(len(Y)))


@pytest.mark.parametrize(
    ("index", "positions"),
    [
        (slice(-9, 9, 3), [2, 5, 8]),
        (slice(3, 3), []),
        ([4, -1], [4, 10]),
        (np.array([7, -11]), [7, 0]),
        (torch.tensor([3]), [3]),
        (-1, 10),
        (np.int32(-2), 9),
        (torch.tensor(5), 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["tensors", "list"])
def test_slices_and_several_positions_keep_their_indices(kind: str, index: Any, positions: Any) -> None:
    data = indexed(TensorDataset(X, Y) if kind == "tensors" else list(zip(X, Y, strict=True)))
    found = data[index]
    items = found if isinstance(positions, list) else [found]
    wanted = positions if isinstance(positions, list) else [positions]
    assert [item[0] for item in items] == wanted
    assert all(type(item[0]) is int for item in items)
    assert all(torch.equal(x, X[k]) and y == Y[k] for k, x, y in items)


@pytest.mark.parametrize(
    ("index", "error"), [(11, IndexError), (-12, IndexError), ([11], IndexError), ("x", TypeError)]
)
def test_positions_that_are_not_there(index: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        indexed(TensorDataset(X, Y))[index]


def test_dicts_get_a_key() -> None:
    for batch in DataLoader(indexed(Dicts()), batch_size=4, shuffle=True, num_workers=2):
        assert set(batch) == {"image", "label", "index"}
        assert torch.equal(batch["image"], X[batch["index"]])


def test_positions_are_those_of_a_list() -> None:
    data: Any = indexed([[x, y] for x, y in zip(X, Y, strict=True)])
    assert [int(index) for index, _, _ in data] == list(range(len(Y)))
    assert data[-1][0] == len(Y) - 1
    assert data[int(torch.tensor(3))][0] == 3
    assert isinstance(indexed([Pair(X[0], Y[0])])[0], tuple)
    with pytest.raises(IndexError):
        data[len(Y)]
    again = pickle.loads(pickle.dumps(data))
    assert torch.equal(again[4][1], X[4])


class Labelled(TensorDataset):
    """A data set with the attributes of torchvision's, and `__getitems__` without indices."""

    def __init__(self) -> None:
        super().__init__(X, Y)
        self.classes, self.targets, self.transform = ["even", "odd"], Y, torch.zeros_like

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        x, y = super().__getitem__(index)
        return self.transform(x), y

    def __getitems__(self, positions: list[int]) -> list[tuple[Tensor, ...]]:
        return [self[k] for k in positions]


def test_attributes_are_those_of_the_data_set() -> None:
    inner = Labelled()
    for data in (indexed(inner), pickle.loads(pickle.dumps(indexed(inner))), copy.copy(indexed(inner))):
        assert data.classes == ["even", "odd"]
        assert torch.equal(data.targets, Y)
        assert hasattr(data, "transform")
        assert not hasattr(data, "target_transform")
        with pytest.raises(AttributeError, match="no attribute 'target_transform'"):
            _ = data.target_transform
    data = indexed(inner)
    assert not data[3][1].any()
    data.transform = torch.ones_like
    assert inner.transform is torch.ones_like
    assert data[3][1].all()
    assert [len(batch) for batch in DataLoader(data, 4)] == [3, 3, 3]  # not through the data set's __getitems__


def test_a_subset_keeps_the_positions_in_the_whole() -> None:
    part = Subset(indexed(TensorDataset(X, Y)), [7, 2])
    assert [part[place][0] for place in range(2)] == [7, 2]


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Has a length and inherits the name `__getitem__`."""

    def __len__(self) -> int:
        return len(Y)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(X, Y, strict=True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (iter([(X[0], Y[0])]), "list_iterator is not a map-style data set"),
        (Stream(), "Stream is not a map-style data set"),
        (Dataset(), "Dataset is not a map-style data set"),
    ],
)
def test_what_has_no_positions_is_refused(data: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        indexed(data)


def test_items_that_leave_no_place_for_an_index_are_named() -> None:
    with pytest.raises(UserError, match="an item of the data set is a Tensor"):
        indexed(X)[0]
    with pytest.raises(UserError, match="a key 'index' already"):
        indexed([{"index": 5}])[0]


def network() -> nn.Module:
    torch.manual_seed(0)
    model = NormedLeNet()
    model(torch.rand(16, 1, 8, 8))
    return model


def test_normalisation_is_inside_and_is_saved() -> None:
    inner = network().eval()
    model = Normalized(inner, torch.tensor([0.3]), [0.4])
    torch.testing.assert_close(model(X), inner((X - 0.3) / 0.4))
    assert isinstance(model.normalize, Normalize)
    assert {"normalize.mean", "normalize.std"} < set(model.state_dict())
    other = Normalized(copy.deepcopy(inner), [0.0], [1.0]).eval()
    assert not torch.equal(other(X), model(X))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(X), model(X))
    assert model.double()(X.double()).dtype == torch.float64
    assert not list(network().state_dict().keys() & {"normalize.mean"})


def test_the_fast_path_folds_a_normalised_network() -> None:
    model = Normalized(network(), [0.3], [0.4]).eval()
    fast = speed_up(model, X[:2])
    assert fast.folds == 2
    torch.testing.assert_close(fast.crafting_network()(X), model(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.5], [0.0], "std is .*: give finite numbers, and a std above 0"),
        ([0.5], [-1.0], "a std above 0"),
        ([0.5], [float("nan")], "a std above 0"),
        ([float("inf")], [1.0], "give finite numbers"),
        ([0.5] * 3, [0.5], "there are 3 means and 1 stds"),
        ([], [], "there are 0 means and 0 stds"),
        ([125.3], [63.0], r"images are in \[0, 1\]; divide the numbers by 255"),
    ],
)
def test_invalid_mean_and_std(mean: list[float], std: list[float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Normalized(network(), mean, std)


def test_a_network_is_normalised_once() -> None:
    for inner in (
        Normalized(network(), [0.3], [0.4]),
        ResNet(width=4, normalize=True).build(DataSpec(10, 11, (1, 8, 8))),
    ):
        with pytest.raises(UserError, match="normalises its inputs already"):
            Normalized(nn.Sequential(inner), [0.3], [0.4])


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 64)])
@pytest.mark.parametrize("channels", [1, 2])
def test_another_number_of_channels_is_named(shape: tuple[int, ...], channels: int) -> None:
    model = Normalized(nn.Flatten(), [0.5] * channels, [0.5] * channels)
    with pytest.raises(UserError, match=f"mean and std are of {channels} channels"):
        model(torch.rand(shape))


class Output(nn.Module):
    """Like the output of transformers' classifiers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> SimpleNamespace:
        return SimpleNamespace(loss=None, logits=self.inner(pixel_values))


def test_logits_are_taken_out() -> None:
    inner = network().eval()
    model = logits_of(Output(inner))
    assert torch.equal(model(X), inner(X))
    assert set(model.state_dict()) == {f"model.inner.{name}" for name in inner.state_dict()}
    assert speed_up(model, X[:2]).folds == 2
    result = evaluate(model, X, Y, attacks=("natural",))
    assert result.natural == pytest.approx(float((inner(X).argmax(1) == Y).double().mean()))


def test_an_output_without_logits_is_named() -> None:
    with pytest.raises(UserError, match=r"NormedLeNet returns a Tensor, which has no \.logits"):
        logits_of(network())(X)


def test_a_method_says_what_would_help() -> None:
    method = UIAT().build(DataSpec(10, 11, (1, 8, 8)))
    with pytest.raises(UserError, match=r"uiat\.logits_of"):
        method(Output(network()), Batch(X, Y, torch.arange(11)), Clock(1, 0, 2))
    with pytest.raises(UserError, match=r"uiat\.Normalized"):
        method(network(), Batch(X - 0.5, Y, torch.arange(11)), Clock(1, 0, 2))
    with pytest.raises(UserError, match=r"uiat\.indexed"):
        method(network(), Batch(X, Y), Clock(1, 0, 2))


@pytest.mark.parametrize("named", [False, True])
def test_the_features_stay_those_of_the_network_inside(named: bool) -> None:
    inner = network().eval()
    if named:
        inner.penultimate_layer = "second"  # type: ignore[assignment]
    model = Normalized(logits_of(Output(inner)), [0.0], [1.0])
    if named:  # the output names its network
        model = Normalized(inner, [0.0], [1.0])
    ours, theirs = penultimate(model, X), penultimate(inner, X)
    for value, expected in zip(ours, theirs, strict=True):
        assert torch.equal(value, expected)
