"""Half precision and torch.compile: each step is close to that in float32, and a resume is exact."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.test_resume import stopped_and_resumed
from tests.support.runs import CPU, STEPS, assert_same, splits, tiny, unbroken
from uiat import recipes
from uiat.balls import Linf
from uiat.config import AnyConfig
from uiat.engine.setup import build_loader, build_state
from uiat.engine.state import Meter, State
from uiat.engine.step import train_step
from uiat.methods import METHODS
from uiat.models import ResNet
from uiat.objectives.divergence import kl_divergence
from uiat.precision import autocast, to_float32
from uiat.types import Batch, Clock, DataSpec


@dataclass
class Trace:
    """The tensors that one step computed."""

    slopes: list[Tensor] = field(default_factory=list)
    """The gradient of each step of x̂, x̌ or z, in the order of the steps."""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """Of the weights, as the optimiser gets them."""
    losses: dict[str, float] = field(default_factory=dict)
    """The loss and its terms."""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    """Running statistics, z and the table of p, after the step."""


def traced_step(state: State, batch: Batch, clock: Clock, *, lr: float, along: Trace | None = None) -> Trace:
    """Take a step and return what it computed; with `along`, x̂, x̌ and z move by the slopes of that step.

    Where a slope is 0 up to rounding, its sign is chance, and a sign decides a whole step of an attack. With the slopes
    of another step, all that is compared with that step is computed at the same points.
    """
    found, original = Trace(), Linf.move

    def move(ball: Linf, at: Tensor, slope: Tensor, step: float) -> Tensor:
        used = slope if along is None else along.slopes[len(found.slopes)]
        found.slopes.append(slope.detach().clone())
        return original(ball, at, used, step)

    def keep(*_: Any) -> None:
        found.gradients |= {n: p.grad.clone() for n, p in state.model.named_parameters() if p.grad is not None}

    state.meter = Meter()
    hook = state.optimizer.register_step_pre_hook(keep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Linf, "move", move)
        assert train_step(state, batch, clock, lr=lr) is None
    hook.remove()
    found.losses = state.meter.means()
    kept = [*state.model.named_buffers(), *state.method.named_buffers()]
    found.buffers = {name: tensor.clone() for name, tensor in kept if tensor.is_floating_point()}
    return found


def side_by_side(config: AnyConfig, reference: AnyConfig) -> Iterator[tuple[Trace, Trace]]:
    """Train by the reference's configuration; yield each step of the other one from the same state, and its own."""
    parts = splits(reference.data)
    ours, theirs = (build_state(each, parts.spec, CPU, None) for each in (config, reference))
    loader, plan = build_loader(reference, parts.train, CPU), reference.train
    steps = loader.steps_per_epoch
    for epoch in range(1, plan.epochs + 1):
        for step, batch in loader.epoch(epoch):
            clock = Clock(epoch, step, plan.epochs)
            lr = plan.schedule.at((epoch - 1) * steps + step, plan.epochs * steps)
            ours.load_state_dict(theirs.state_dict())
            ours.method.load_state_dict(theirs.method.state_dict())
            expected = traced_step(theirs, batch, clock, lr=lr)
            yield traced_step(ours, batch, clock, lr=lr, along=expected), expected


ROUNDING = {"bf16": 2.0**-9, "fp16": 2.0**-12}
"""Half a unit in the last place, of 8 and of 11 bits."""
HALF = 8 * 3 * 2
"""Roundings in half precision: eight layers in a row, each of input, weights and output, forward and backward."""
REORDERED = 16 * 8 * 8
"""Roundings where float32 sums in another order: the longest sums are BatchNorm's, over all pixels of a batch."""


def smooth(method: str, **changes: Any) -> AnyConfig:
    """Return a run of 3 × 2 steps without kinks (ReLU, |·| of features), where rounding switches a gradient over."""
    config: Any = tiny(method, **changes)
    if method == "uiat":
        config = replace(config, method=replace(config.method, inverse=replace(config.method.inverse, beta=0.0)))
    network = ResNet(blocks=(1, 1, 1), width=4, activation="silu")
    return replace(config, model=network, data=replace(config.data, subset=44))


def norms(rows: Tensor) -> Tensor:
    found: Tensor = rows.flatten(1).norm(dim=1)
    return found


def check_close(ours: Trace, theirs: Trace, bound: float, *, slopes: bool) -> None:
    """Assert that two steps from the same state differ only by rounding: at worst, all roundings add up."""
    assert ours.losses.keys() == theirs.losses.keys()
    for name in theirs.losses.keys() - {"train_accuracy"}:  # a mean of many values, in which rounding averages out
        assert abs(ours.losses[name] - theirs.losses[name]) <= bound / 10 * abs(theirs.losses["loss"]), name
    gradients = [torch.cat([tensor.flatten() for tensor in each.gradients.values()]) for each in (ours, theirs)]
    assert (gradients[0] - gradients[1]).norm() <= bound * gradients[1].norm()
    for name, tensor in theirs.buffers.items():
        assert (ours.buffers[name] - tensor).norm() <= bound * tensor.norm(), name
    assert len(ours.slopes) == len(theirs.slopes) > 0
    for found, slope in zip(ours.slopes, theirs.slopes, strict=True) if slopes else ():
        assert (norms(found - slope) <= bound * norms(slope)).all()


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("method", ["sat", "trades", "uiat"])
def test_a_step_in_half_precision_is_that_of_float32(method: str, precision: str) -> None:
    for ours, theirs in side_by_side(smooth(method, precision=precision), smooth(method)):
        # TRADES' slopes are differences of nearly equal numbers, see below.
        check_close(ours, theirs, HALF * ROUNDING[precision], slopes=method != "trades")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sat", "uiat", "gradalign"])
def test_a_compiled_step_is_that_of_an_eager_one(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    for ours, theirs in side_by_side(smooth(method, compile=True), smooth(method)):
        check_close(ours, theirs, REORDERED * 2.0**-24, slopes=True)
    assert "without torch.compile" not in capsys.readouterr().err


def test_trades_finds_its_attack_in_half_precision() -> None:
    """It starts 0.001 from x, where fp16 has steps of 0.0005: only its first gradients are affected by rounding."""
    config = smooth("trades")
    images = splits(config.data).train
    state = build_state(config, splits(config.data).spec, CPU, None)
    for number, (_, batch) in enumerate(build_loader(config, images, CPU).epoch(1)):
        assert train_step(state, batch, Clock(1, number, 3), lr=0.1) is None
    x, found = images.x.float() / 255, {}
    model = state.model.eval()
    for precision in ("fp32", "bf16", "fp16"):
        with autocast(CPU, precision):
            x_adv = state.method.craft(model, Batch(x, images.y, torch.arange(len(x))), Clock(2, 0, 3)).x_adv
        with torch.no_grad():
            found[precision] = float(kl_divergence(model(x).log_softmax(1), model(x_adv).log_softmax(1)).mean())
    assert min(found["bf16"], found["fp16"]) > 0.6 * found["fp32"], "random signs get about a third"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_kill_changes_no_bit(precision: str, tmp_path: Path) -> None:
    settings = tiny("uiat", precision=precision, checkpoint_minutes=0.0)
    assert_same(stopped_and_resumed(settings, tmp_path / "run", STEPS + 2), unbroken(settings))


SPEC = DataSpec(num_classes=3, num_samples=12, shape=(1, 8, 8))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_what_matters_in_float32(method: str, precision: str) -> None:
    recipe = recipes.get_recipe("digits-resnet8-uiat")
    config = replace(
        recipe,
        method=METHODS[method],
        model=replace(recipe.model, width=2),  # type: ignore[type-var]
        train=replace(recipe.train, precision=precision),  # type: ignore[arg-type]
    )
    helper = config.model.build(SPEC).requires_grad_(False)
    state = build_state(config, SPEC, CPU, helper)
    seen: set[torch.dtype] = set()
    layer = next(m for m in state.model.modules() if isinstance(m, torch.nn.Conv2d))
    layer.register_forward_hook(lambda module, args, output: seen.add(output.dtype))
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(12, 1, 8, 8, generator=g), torch.arange(12) % 3
    for epoch in (7, 8, 9):
        assert train_step(state, Batch(x, y, torch.arange(12)), Clock(epoch, 0, 10), lr=0.1) is None
    assert torch.bfloat16 in seen or torch.float16 in seen
    floats = [
        t for t in (*state.model.state_dict().values(), *state.method.state_dict().values()) if t.is_floating_point()
    ]
    assert {tensor.dtype for tensor in floats} == {torch.float32}
    assert all(tensor.isfinite().all() for tensor in floats)
    assert all(value.dtype == torch.float64 for value in state.meter.sums.values())


def test_to_float32_changes_only_half_precision() -> None:
    for dtype, expected in {torch.bfloat16: torch.float32, torch.float16: torch.float32}.items():
        assert to_float32(torch.ones(2, dtype=dtype)).dtype == expected
    for dtype in (torch.float32, torch.float64):
        values = torch.ones(2, dtype=dtype)
        assert to_float32(values) is values
