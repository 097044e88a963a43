"""Contract of all registered methods."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.contract_setting import CONFIGS, DATA, SOFT, build, network, samples, soft_labels, steps
from uiat.attacks import PGD
from uiat.errors import UserError
from uiat.methods import METHODS, Method
from uiat.models.features import penultimate
from uiat.objectives.terms import CleanCrossEntropy, Weighted
from uiat.types import Batch, Clock, DataSpec

CLOCKS = [Clock(1, 0, 4), Clock(3, 1, 4), Clock(4, 2, 4)]


def batch(dtype: torch.dtype = torch.float32) -> Batch:
    x, y = samples(dtype)
    return Batch(x, y, torch.arange(len(y)))


@pytest.mark.parametrize("half", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", METHODS)
def test_finite_loss_with_gradient_on_every_parameter(name: str, clock: Clock, half: bool) -> None:
    """In the caller's autocast, too: torch 2.5 keeps weights that a forward without a graph has cast."""
    model, method = network(dtype=torch.float32), build(CONFIGS[name], torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        loss = method(model, batch(), clock)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    weights = {term.name: term.weight for term in method.terms}
    parts = sum(weights[part] * value for part, value in loss.parts.items())
    torch.testing.assert_close(torch.as_tensor(parts), loss.total.detach())
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", METHODS)
def test_leaves_the_model_unchanged(name: str, clock: Clock) -> None:
    """Mode and requires_grad of every part, also where the caller froze some on purpose; no gradient is left."""
    model, method = network(dtype=torch.float32), build(CONFIGS[name], torch.float32)
    frozen: Any = model.get_submodule("layer1.0.bn1")
    frozen.eval()
    frozen.weight.requires_grad_(False)
    modes = {key: module.training for key, module in model.named_modules()}
    flags = {key: parameter.requires_grad for key, parameter in model.named_parameters()}
    running = frozen.running_mean.clone()
    method(model, batch(), clock)
    assert {key: module.training for key, module in model.named_modules()} == modes
    assert {key: parameter.requires_grad for key, parameter in model.named_parameters()} == flags
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(frozen.running_mean, running)


@pytest.mark.parametrize("name", METHODS)
def test_a_failing_model_is_left_unchanged(name: str) -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 4)

        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("broken")

    model = Failing().train()
    with pytest.raises(RuntimeError, match="broken"):
        build(CONFIGS[name], torch.float32)(model, batch(), CLOCKS[0])
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("name", METHODS)
def test_state_dict_is_complete(name: str) -> None:
    """Saved and loaded in the middle, a method continues in the same bits."""
    x, y = samples(torch.float32)
    model, method = network(dtype=torch.float32), build(CONFIGS[name], torch.float32)
    for clock, index in steps():
        if clock.epoch == 3 and clock.step == 1:
            break
        method(model, Batch(x[index], y[index], index), clock)
    other, twin_model = build(CONFIGS[name], torch.float32), copy.deepcopy(model)
    other.load_state_dict(method.state_dict())
    for clock, index in steps():
        if (clock.epoch, clock.step) >= (3, 1):
            ours = method(model, Batch(x[index], y[index], index), clock).total
            theirs = other(twin_model, Batch(x[index], y[index], index), clock).total
            assert torch.equal(ours, theirs)
    for key, value in method.state_dict().items():
        assert torch.equal(value, other.state_dict()[key])


@pytest.mark.parametrize("name", METHODS)
def test_a_micro_batch_keeps_its_rows_of_the_draws(name: str) -> None:
    """x̂ of a part equals that part of x̂: draws are made for the whole batch (running statistics while crafting)."""
    whole, method = batch(torch.float64), build(CONFIGS[name])
    method.crafting = "eval"
    model = network()
    together = method.craft(model, whole, CLOCKS[0]).x_adv
    apart = torch.cat([method.craft(model, part, CLOCKS[0]).x_adv for part in whole.split(5)])
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-12)


class Perceptron(nn.Module):
    """A custom classifier of vectors, with only a forward method."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", METHODS)
def test_works_on_vectors_and_any_classifier(name: str) -> None:
    data = DataSpec(num_classes=3, num_samples=12, shape=(10,))
    torch.manual_seed(0)
    model = Perceptron()
    method = CONFIGS[name].build(data, helper=Perceptron())
    x, y = torch.rand(12, 10), torch.arange(12) % 3
    for epoch in range(1, 5):
        loss = method(model, Batch(x, y, torch.arange(12)), Clock(epoch, 0, 4)).total
        assert torch.isfinite(loss)
    assert penultimate(model, x)[0].shape == (12, 16)


@pytest.mark.parametrize("name", METHODS)
def test_sample_indices_are_needed_only_by_what_remembers(name: str) -> None:
    method, model = build(CONFIGS[name], torch.float32), network(dtype=torch.float32)
    x, y = samples(torch.float32)
    if method.target is not None and method.target.remembers:
        with pytest.raises(UserError, match="no sample indices"):
            method(model, Batch(x, y), CLOCKS[0])
    else:
        assert torch.isfinite(method(model, Batch(x, y), CLOCKS[0]).total)


WRONG = {
    "a label lies outside": lambda x, y, i: Batch(x, y + 2, i),
    "pixels lie outside": lambda x, y, i: Batch(x + 0.5, y, i),
    "or are NaN": lambda x, y, i: Batch(torch.full_like(x, torch.nan), y, i),
    "a sample has shape": lambda x, y, i: Batch(x[:, :, :7], y, i),
    "a sample index lies outside": lambda x, y, i: Batch(x, y, i + 5),
}


@pytest.mark.parametrize("message", WRONG)
def test_first_batch_is_checked(message: str) -> None:
    x, y = samples(torch.float32)
    with pytest.raises(UserError, match=message):
        build(CONFIGS["uiat"], torch.float32)(
            network(dtype=torch.float32), WRONG[message](x, y, torch.arange(len(y))), CLOCKS[0]
        )


def test_hat_without_a_helper_says_so() -> None:
    with pytest.raises(UserError, match="needs a naturally trained helper"):
        METHODS["hat"].build(DATA)


def test_a_helper_is_a_submodule_that_is_not_saved() -> None:
    """It moves with the method, stays in eval mode, and is in no state dict, also not in that of a module around it."""
    helper = Perceptron()
    method = METHODS["hat"].build(DataSpec(3, 12, (10,)), helper=helper)
    method.double().train()
    assert all(p.dtype == torch.float64 for p in helper.parameters())
    assert not helper.training
    for module in (method, nn.ModuleDict({"method": method})):
        assert module.state_dict() == {}
        module.load_state_dict({})
    other = copy.deepcopy(method)
    assert other.helper is not helper
    assert other.terms[2].term.helper is other.helper  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", METHODS)
def test_an_input_that_requires_a_gradient_changes_nothing(name: str) -> None:
    """The input gets no gradient, and no graph of it is kept."""
    losses = []
    for flag in (False, True):
        model, method, given = network(dtype=torch.float32), build(CONFIGS[name], torch.float32), batch()
        given.x.requires_grad_(flag)
        view = method.craft(model, given, CLOCKS[1])
        method.prepare(model, [view], CLOCKS[1])
        assert not view.x_adv.requires_grad
        losses.append(method.loss(view, CLOCKS[1]).total)
        losses[-1].backward()
        assert given.x.grad is None
    assert torch.equal(*losses)


class Deaf(nn.Module):
    """A network whose logits do not follow its input, as far as autograd knows."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.inner = way, network(dtype=torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "no_grad":
            with torch.no_grad():
                return self.inner(x)  # type: ignore[no-any-return]
        if self.way == "numpy":
            return self.inner(torch.from_numpy(x.detach().numpy().copy()))  # type: ignore[no-any-return]
        if self.way == "integers":
            return self.inner((x * 255).long().float() / 255)  # type: ignore[no-any-return]
        return self.inner(x.detach()) + 0 * self.inner(x.detach() + torch.zeros(1, requires_grad=True))  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["no_grad", "numpy", "integers", "detach"])
@pytest.mark.parametrize("name", [name for name in METHODS if name != "natural"])
def test_no_gradient_at_the_input_is_named(name: str, way: str) -> None:
    method = build(CONFIGS[name], torch.float32)
    with pytest.raises(UserError, match="no gradient of the loss reaches the input"):
        method(Deaf(way), batch(), CLOCKS[0])


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", METHODS)
def test_networks_and_samples_in_half_precision(name: str, dtype: torch.dtype, clock: Clock) -> None:
    """Not autocast: the weights and the samples themselves. Losses and z stay in float32."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, DATA.num_classes))
    model = model.to(dtype)
    try:
        model(samples()[0].to(dtype)).sum().backward()
    except RuntimeError as error:  # an older torch has no kernels for it on a CPU
        pytest.skip(str(error))
    model.zero_grad()
    method, given = CONFIGS[name].build(DATA, helper=model), batch()
    loss = method(model, Batch(given.x.to(dtype), given.y, given.index), clock)
    loss.total.backward()
    assert loss.total.isfinite()
    assert loss.total.dtype == torch.float32
    assert all(p.grad is not None and p.grad.isfinite().all() and p.dtype == dtype for p in model.parameters())


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", METHODS)
def test_the_loss_has_its_adversarial_examples_and_their_logits(name: str, clock: Clock) -> None:
    model, method, given = network(), build(CONFIGS[name]), batch(torch.float64)
    loss = method(model, given, clock)
    if method.attack is None:
        assert loss.x_adv is loss.logits_adv is None
        return
    assert loss.x_adv is not None
    assert loss.logits_adv is not None
    assert loss.x_adv.grad_fn is loss.logits_adv.grad_fn is None
    assert not loss.x_adv.requires_grad
    assert not loss.logits_adv.requires_grad
    assert float((loss.x_adv - given.x).abs().max()) <= method.attack.radius + 1e-9
    assert not torch.equal(loss.x_adv, given.x)
    torch.testing.assert_close(loss.logits_adv, model(loss.x_adv))  # in training mode, as the loss


@pytest.mark.parametrize("name", [name for name in METHODS if name != "natural"])
def test_micro_batches_have_the_adversarial_examples_of_the_batch(name: str) -> None:
    """Crafted, and predicted, with running statistics: batch statistics would be those of the part."""
    model, given = network().eval(), batch(torch.float64)
    found = []
    for size in (None, 5):
        method = build(CONFIGS[name])
        method.crafting = "eval"
        parts = given.split(size)
        views = [method.craft(model, part, CLOCKS[1]) for part in parts]
        method.prepare(model, views, CLOCKS[1])
        losses = [method.loss(view, CLOCKS[1]) for view in views]
        x_adv, logits = ([getattr(loss, each) for loss in losses] for each in ("x_adv", "logits_adv"))
        assert [len(part) for part in parts] == list(map(len, x_adv)) == list(map(len, logits))
        found.append((torch.cat(x_adv), torch.cat(logits)))
    for whole, joined in zip(*found, strict=True):
        torch.testing.assert_close(joined, whole, rtol=0, atol=1e-10)


def test_terms_without_a_prediction_on_x_adv_omit_its_logits() -> None:
    """In a custom method; f(x̂) is not computed only for logging."""
    method = Method(DATA, attack=CONFIGS["sat"].attack, terms=[Weighted("ce", CleanCrossEntropy())])
    model = network(dtype=torch.float32)
    loss = method(model, batch(), CLOCKS[0])
    assert loss.x_adv is not None
    assert loss.logits_adv is None


def one_hot(y: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    return F.one_hot(y, DATA.num_classes).to(dtype)


@pytest.mark.parametrize("name", SOFT)
def test_one_hot_labels_give_the_numbers_of_classes(name: str) -> None:
    """Loss, terms, x̂, and the gradient; also where the loader gives labels of another precision."""
    found = []
    for soft in (None, torch.float64, torch.float16):
        model, method, given = network(), build(CONFIGS[name]), batch(torch.float64)
        loss = method(model, given if soft is None else replace(given, y=one_hot(given.y, soft)), CLOCKS[1])
        gradients = torch.autograd.grad(loss.total, list(model.parameters()))
        found.append([loss.total.detach(), *loss.parts.values(), *(() if loss.x_adv is None else [loss.x_adv])])
        found[-1] += gradients
    for values in found[1:]:
        torch.testing.assert_close(values, found[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_soft_labels_are_taken_or_named(name: str) -> None:
    model, method, given = network(dtype=torch.float32), build(CONFIGS[name], torch.float32), batch()
    given = replace(given, y=soft_labels().float())
    if name in SOFT:
        assert not method.needs_classes
        with torch.autocast("cpu", torch.bfloat16):
            losses = [method(model, part, CLOCKS[0]).total for part in (given, *given.split(5))]
        assert torch.stack(losses).isfinite().all()
        return
    with pytest.raises(UserError, match=r"shape \(14, 4\) .*one int64 label per sample, because") as error:
        method(model, given, CLOCKS[0])  # in the first batch, also where z is updated only in a late epoch
    assert ("MART" in str(error.value)) == (name == "mart")
    assert all(word in str(error.value) for word in ("MixUp", "label_smoothing", "IAT"))


def test_the_margin_of_an_attack_needs_classes() -> None:
    config = replace(CONFIGS["sat"], attack=PGD(eps=0.1, step=0.03, steps=3, loss="margin"))  # type: ignore[type-var]
    with pytest.raises(UserError, match=r"the margin .* one class"):
        build(config)(network(), replace(batch(torch.float64), y=soft_labels()), CLOCKS[0])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (one_hot(torch.zeros(14, dtype=torch.int64)) * 2, "not probabilities"),
        (torch.full((14, 4), 0.2), "not probabilities"),
        (torch.full((14, 4), torch.nan), "not probabilities"),
        (torch.full((14, 3), 1 / 3), r"shape \(14, 3\) for 14 samples"),
        (one_hot(torch.zeros(14, dtype=torch.int64), torch.int64), r"shape \(14, 4\) for 14 samples"),
    ],
    ids=["sum of 2", "sum of 0.8", "nan", "classes", "integers"],
)
def test_soft_labels_that_are_none(y: Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(CONFIGS["sat"])(network(), replace(batch(torch.float64), y=y), CLOCKS[0])
