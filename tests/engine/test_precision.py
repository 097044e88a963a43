"""Half precision and torch.compile: close to float32 as it is, and still exact to resume."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.moments import STEP, Killed, at_call, die
from tests.engine.runs import CPU, STEPS, assert_same, begin, go_on, snapshot, tiny
from uiat import data, recipes
from uiat.attacks import PGD
from uiat.config import AnyConfig
from uiat.engine.run import RunFolder
from uiat.engine.schedule import Schedule
from uiat.engine.setup import build_loader, build_state
from uiat.engine.step import train_step
from uiat.evaluation.accuracy import accuracy
from uiat.methods import METHODS
from uiat.precision import widen
from uiat.types import Batch, Clock, DataSpec

EPOCHS = 4


def short(method: str, **changes: Any) -> AnyConfig:
    recipe: Any = recipes.get(f"digits-resnet8-{method}")
    attack = replace(recipe.method.attack, steps=3) if isinstance(recipe.method.attack, PGD) else recipe.method.attack
    train = replace(recipe.train, epochs=EPOCHS, schedule=Schedule(lr=0.1), **changes)
    return replace(recipe, method=replace(recipe.method, attack=attack), train=train)


def trained(config: AnyConfig) -> tuple[float, float, float]:
    """Train on digits; return the run's mean loss, and accuracy on the test images, natural and attacked."""
    splits = data.load(config.data)
    state = build_state(config, splits.spec, CPU, None)
    loader = build_loader(config, splits.train, CPU)
    total = EPOCHS * loader.steps_per_epoch
    for epoch in range(1, EPOCHS + 1):
        for step, batch in loader.epoch(epoch):
            now = (epoch - 1) * loader.steps_per_epoch + step
            lr = config.train.schedule.at(now, total)
            assert train_step(state, batch, Clock(epoch, step, EPOCHS), lr=lr) is None
    attack = PGD(eps=0.2, step=0.05, steps=5)
    found = [accuracy(state.model, splits.test, enemy, batch_size=512).value for enemy in (None, attack)]
    return state.meter.means()["loss"], found[0], found[1]


def check_close(config: AnyConfig, reference: AnyConfig, within: float = 0.02) -> None:
    (loss, natural, robust), (loss0, natural0, robust0) = trained(config), trained(reference)
    assert loss == pytest.approx(loss0, rel=within)
    assert natural == pytest.approx(natural0, abs=0.01)
    assert robust == pytest.approx(robust0, abs=0.06)  # half-way through, it swings from step to step


@pytest.mark.parametrize("method", [pytest.param("sat", marks=pytest.mark.slow), "uiat"])
def test_bf16_learns_the_same(method: str) -> None:
    check_close(short(method, precision="bf16"), short(method))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sat", "trades", "uiat"])
def test_fp16_learns_the_same(method: str) -> None:
    # TRADES begins 0.001 from x, where fp16 has steps of 0.0005: its first gradient is partly rounding.
    check_close(short(method, precision="fp16"), short(method), within=0.03 if method == "trades" else 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sat", "uiat", "gradalign"])
def test_compiled_learns_the_same(method: str) -> None:
    check_close(short(method, compile=True), short(method))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_kill_changes_no_bit(precision: str, tmp_path: Path) -> None:
    settings = tiny("uiat", precision=precision, checkpoint_minutes=0.0)
    whole = snapshot(begin(settings, tmp_path / "whole"))
    run = RunFolder.create(tmp_path / "run", settings)
    with at_call(STEP, STEPS + 2, die), pytest.raises(Killed):
        go_on(run)
    assert go_on(run)
    assert_same(run, whole)


SPEC = DataSpec(num_classes=3, num_samples=12, shape=(1, 8, 8))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_what_matters_in_float32(method: str, precision: str) -> None:
    recipe = recipes.get("digits-resnet8-uiat")
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


def test_widening_is_for_half_precision_alone() -> None:
    for dtype, expected in {torch.bfloat16: torch.float32, torch.float16: torch.float32}.items():
        assert widen(torch.ones(2, dtype=dtype)).dtype == expected
    for dtype in (torch.float32, torch.float64):
        values = torch.ones(2, dtype=dtype)
        assert widen(values) is values
