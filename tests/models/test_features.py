"""Penultimate features of bundled and custom models."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from tests.support.networks import AlexLike, ConvHead, Halves, Mean, Reused, SwinLike, cnn, data, hooks, mlp
from uiat.errors import UserError
from uiat.models import ModelConfig, Normalize, PreActResNet, ResNet, WideResNet, penultimate

IMAGES = (3, 8, 8)
OWN: dict[str, ModelConfig] = {
    "resnet": ResNet(blocks=(1, 1), width=4),
    "preact": PreActResNet(blocks=(1, 1), width=4),
    "wide": WideResNet(depth=10, widen=1),
}


def seen_by(model: nn.Module, layer: nn.Module, x: Tensor) -> Tensor:
    """Return the input of a layer, recorded by a hook."""
    seen: list[Tensor] = []
    with layer.register_forward_pre_hook(lambda _, args: seen.append(args[0])):
        model(x)
    return seen[-1].flatten(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OWN)
def test_bundled_networks(name: str, dtype: torch.dtype) -> None:
    model: Any = OWN[name].build(data()).to(dtype).eval()
    x = torch.rand(3, *IMAGES, dtype=dtype)
    f, logits = penultimate(model, x)
    assert torch.equal(f, model.features(x))
    assert torch.equal(logits, model(x))


@pytest.mark.parametrize(
    ("model", "head", "shape"),
    [
        (cnn(), "5", IMAGES),
        (mlp(), "3", (5,)),
        (mlp(2 * 3 * 4 * 5), "3", (2, 3, 4, 5)),
        (nn.Linear(6, 3), "", (6,)),
        (AlexLike(), "classifier.3", IMAGES),
        (SwinLike(), "head", IMAGES),
        (nn.Sequential(Normalize([0.5] * 3, [0.5] * 3), ResNet((1,), 4).build(data())), "1.linear", IMAGES),
        (nn.Sequential(cnn(), nn.Identity()), "0.5", IMAGES),
    ],
    ids=["cnn", "mlp", "mlp of any shape", "linear", "alex", "swin", "wrapped", "identity after"],
)
def test_any_classifier(model: nn.Module, head: str, shape: tuple[int, ...]) -> None:
    model.eval()
    x = torch.rand(4, *shape)
    f, logits = penultimate(model, x)
    assert f.ndim == 2
    assert torch.equal(f, seen_by(model, model.get_submodule(head), x))
    assert torch.equal(logits, model(x))


def test_halves_are_used_when_they_make_up_the_model() -> None:
    model = Halves().eval()
    x = torch.rand(3, *IMAGES)
    f, logits = penultimate(model, x)
    assert torch.equal(f, model.features(x).flatten(1))
    assert f.shape == (3, 4 * 8 * 8)
    assert torch.equal(logits, model(x))


def test_a_head_of_more_than_one_layer_is_taken_whole() -> None:
    model = Halves(head=nn.Sequential(nn.Flatten(), nn.Linear(256, 7), nn.ReLU(), nn.Linear(7, 5))).eval()
    f, logits = penultimate(model, torch.rand(3, *IMAGES))
    assert f.shape == (3, 256)
    assert logits.shape == (3, 5)


@pytest.mark.parametrize("between", [nn.Dropout(0.5), nn.BatchNorm2d(4)], ids=["dropout", "batch norm"])
def test_halves_with_something_between_them_still_give_the_logits_of_the_model(between: nn.Module) -> None:
    model = Halves(between=between)
    x = torch.rand(3, *IMAGES)
    torch.manual_seed(0)
    logits = penultimate(model, x)[1]
    torch.manual_seed(0)
    assert torch.equal(logits, model(x))


@pytest.mark.parametrize("layer", ["1", "4", "5"])
def test_a_named_layer(layer: str) -> None:
    model = cnn().eval()
    x = torch.rand(2, *IMAGES)
    f, logits = penultimate(model, x, layer)
    assert torch.equal(f, seen_by(model, model.get_submodule(layer), x))
    assert torch.equal(logits, model(x))


def test_a_convolution_as_head_by_name() -> None:
    model = ConvHead().eval()
    x = torch.rand(3, *IMAGES)
    f, logits = penultimate(model, x, "last")
    assert f.shape == (3, 6)
    assert torch.equal(logits, model(x))


def test_the_name_can_be_kept_by_the_model() -> None:
    model: Any = ResNet((1, 1), 4, features="layer2").build(data()).eval()
    x = torch.rand(2, *IMAGES)
    assert torch.equal(penultimate(model, x)[0], seen_by(model, model.layer2, x))
    assert torch.equal(penultimate(model, x, "linear")[0], model.features(x))


def test_a_layer_that_runs_twice_counts_the_last_time() -> None:
    model = Reused().eval()
    x = torch.rand(2, 6)
    assert torch.equal(penultimate(model, x)[0], model.same(x))


def test_of_equal_outputs_the_last_layer_is_the_head() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    x = torch.rand(2, 6)
    assert torch.equal(penultimate(model, x)[0], torch.zeros(2, 6))


def test_a_shared_layer_goes_by_any_of_its_names() -> None:
    layer = nn.Linear(6, 6)
    model = nn.Sequential(layer, nn.Tanh(), layer)
    x = torch.rand(2, 6)
    assert torch.equal(penultimate(model, x, "2")[0], model[:2](x))


def test_a_layer_that_works_in_place() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))
    x = torch.rand(8, 6)
    assert torch.equal(penultimate(model, x, "1")[0], model[0](x))


def test_a_layer_called_by_keyword() -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc(input=x * 2)
            return out

    x = torch.rand(2, 6)
    assert torch.equal(penultimate(Keyword(), x)[0], x * 2)


def test_both_results_are_differentiable() -> None:
    for model in (ResNet((1,), 4).build(data()), cnn()):
        x = torch.rand(2, *IMAGES, requires_grad=True)
        f, logits = penultimate(model, x)
        (g,) = torch.autograd.grad(f.abs().sum(), x, retain_graph=True)
        (h,) = torch.autograd.grad(logits.logsumexp(1).sum(), x)
        assert g.abs().sum() > 0
        assert h.abs().sum() > 0


def test_a_compiled_model() -> None:
    model = cnn().eval()
    x = torch.rand(2, *IMAGES)
    compiled = cast(nn.Module, torch.compile(model, backend="eager"))
    compiled(x)  # so that the hooks come after the compilation
    f, logits = penultimate(compiled, x)
    assert torch.equal(f, penultimate(model, x)[0])
    assert torch.equal(logits, model(x))


@pytest.mark.parametrize(
    ("model", "layer", "message"),
    [
        (Mean(), "", r"Mean: .*`--model.features fc`"),
        (ConvHead(), "", "ConvHead"),
        (cnn(), "6", "'6'"),
        (AlexLike(), "clasifier.3", "'clasifier.3'.*'classifier.3'"),
        (AlexLike(), "unused", "'unused'"),
        (Reused(), "scalar", "'scalar'"),
        (Reused(), "vector", "'vector'"),
    ],
)
def test_mistakes_are_explained(model: nn.Module, layer: str, message: str) -> None:
    x = torch.rand(3, 6) if isinstance(model, Reused) else torch.rand(3, *IMAGES)
    with pytest.raises(UserError, match=message) as caught:
        penultimate(model, x, layer)
    assert "\n" not in str(caught.value)
    assert hooks(model) == 0
