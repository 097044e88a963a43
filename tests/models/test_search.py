"""The search for features leaves no trace: statistics, random streams, modes, hooks and memory."""

import copy
import gc
import weakref
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.networks import AlexLike, Halves, SwinLike, cnn, data, hooks
from uiat.models import PreActResNet, ResNet, penultimate
from uiat.models.features import Features


class Noisy(nn.Module):
    """Dropout that is on in every mode, with `features` and `head`."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3)

    def features(self, x: Tensor) -> Tensor:
        return F.dropout(self.body(x), training=True)

    def head(self, f: Tensor) -> Tensor:
        out: Tensor = self.last(f) * 2
        return out

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def images() -> Tensor:
    return torch.rand(4, 3, 8, 8)


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize(
    "model",
    [ResNet((1,), 4).build(data()), PreActResNet((1,), 4).build(data()), cnn()],
    ids=["own", "pre", "cnn"],
)
def test_each_call_in_train_mode_updates_the_statistics_once(model: nn.Module, calls: int) -> None:
    model, twin = copy.deepcopy(model), copy.deepcopy(model)
    for _ in range(calls):
        x = images()
        logits = penultimate(model, x)[1]
        assert torch.equal(logits, twin(x))
    for (name, buffer), expected in zip(model.named_buffers(), twin.buffers(), strict=True):
        assert torch.equal(buffer, expected), name
        assert not name.endswith("num_batches_tracked") or buffer == calls


@pytest.mark.parametrize("model", [AlexLike(), Halves(between=nn.Dropout()), Noisy()], ids=["module", "halves", "f"])
def test_the_first_call_does_not_shift_the_random_stream(model: nn.Module) -> None:
    x = torch.rand(4, 6) if isinstance(model, Noisy) else images()
    torch.manual_seed(3)
    expected, after = model(x), torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(penultimate(model, x)[1], expected)
    assert torch.equal(torch.rand(3), after)


def test_a_model_that_is_random_in_every_mode_is_split_all_the_same() -> None:
    model, features = Noisy(), Features()
    assert features(model, torch.rand(2, 6))[0].shape == (2, 6)
    assert features.layer(model, torch.rand(2, 6)) is None


@pytest.mark.parametrize("model", [cnn(), SwinLike(), Halves(), ResNet((1,), 4).build(data())])
def test_every_module_keeps_its_own_mode(model: nn.Module) -> None:
    for k, module in enumerate(model.modules()):
        module.training = k % 2 == 0
    before = [module.training for module in model.modules()]
    penultimate(model, images())
    assert [module.training for module in model.modules()] == before
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert hooks(model) == 0


class Broken(nn.Module):
    def __init__(self, fail_at: int) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 3)
        self.calls: list[int] = []
        self.fail_at = fail_at

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(x)
        self.calls.append(len(x))
        if len(self.calls) == self.fail_at:
            raise RuntimeError("out of luck")
        return out


@pytest.mark.parametrize("fail_at", [1, 2], ids=["in the search", "after it"])
def test_hooks_and_modes_survive_an_error_of_the_model(fail_at: int) -> None:
    model = Broken(fail_at)
    with pytest.raises(RuntimeError, match="out of luck"):
        penultimate(model, torch.rand(2, 6))
    assert hooks(model) == 0
    assert model.training
    assert model.fc.training
    assert penultimate(model, torch.rand(2, 6))[0].shape == (2, 6)


def test_the_search_happens_once_for_each_model() -> None:
    model, features = Broken(0), Features()
    for _ in range(3):
        features(model, torch.rand(2, 6))
    assert len(model.calls) == 4
    other = Broken(0)
    features(other, torch.rand(2, 6))
    assert (len(model.calls), len(other.calls)) == (4, 2)
    copy.deepcopy(features)(other, torch.rand(2, 6))
    assert len(other.calls) == 4


@pytest.mark.parametrize("model", [cnn(), ResNet((1,), 4, normalize=True).build(data())], ids=["cnn", "own"])
def test_the_search_holds_for_another_type_and_batch(model: nn.Module) -> None:
    features = Features()
    features(model, images())
    f, logits = features(model.double(), images().double())
    assert f.dtype == logits.dtype == torch.float64
    assert len(features(model.eval(), images().double()[:1])[0]) == 1
    with torch.device("meta"):
        assert features(model.to("meta"), torch.rand(2, 3, 9, 9, dtype=torch.float64))[0].is_meta


def test_a_replaced_head_is_followed() -> None:
    model, features = cnn(), Features()
    features(model, images())
    model[5] = nn.Linear(6, 2)
    f, logits = features(model, images())
    assert f.shape == (4, 6)
    assert logits.shape == (4, 2)


@pytest.mark.parametrize("make", [cnn, lambda: nn.Linear(8, 3), lambda: ResNet((1,), 4).build(data())])
def test_a_model_is_not_kept_alive(make: Any) -> None:
    model, features = make(), Features()
    features(model, images())
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_head_whose_output_is_changed_in_place_is_not_taken_for_the_last() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = nn.Linear(6, 3)
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.hidden(x)
            return out.mul_(self.scale)

    with pytest.raises(ValueError, match="no final linear layer"):
        penultimate(Scaled(), torch.rand(2, 6))


def test_nan_logits_do_not_hide_the_head() -> None:
    model = cnn()
    nn.init.constant_(cast(nn.Linear, model[5]).weight, torch.nan)
    assert penultimate(model, images())[0].shape == (4, 6)


def test_low_rank_updates_of_the_layers_do_not_matter() -> None:
    class LowRank(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base, self.a, self.b = base, nn.Linear(base.in_features, 2), nn.Linear(2, base.out_features)
            nn.init.zeros_(self.b.weight)
            nn.init.zeros_(self.b.bias)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.base(x) + self.b(self.a(x))
            return out

    model = nn.Sequential(nn.Flatten(), LowRank(nn.Linear(192, 6)), nn.ReLU(), LowRank(nn.Linear(6, 5))).eval()
    x = images()
    assert torch.equal(penultimate(model, x)[0], model[:3](x))
