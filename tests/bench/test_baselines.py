"""Bare passes run as in the steps, nothing else is timed, and literal references make the methods' steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import uiat.methods.method as module
from tests.bench import CPU, SETTING
from uiat.bench.bare_passes import BarePass, bare_passes, bare_passes_of
from uiat.bench.interleaved_timing import time_methods
from uiat.bench.timed_method import LITERAL_LOSSES, Phase, TimedMethod, literal_step
from uiat.config import Training
from uiat.engine.setup import build_state
from uiat.methods import METHODS
from uiat.models import ResNet
from uiat.models.fast import AcceleratedModel, Compiled
from uiat.models.features import Features
from uiat.models.folding import folded_copy
from uiat.types import Batch, Clock


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_bare_passes_have_the_precision_of_the_setting(precision: Any) -> None:
    setting = replace(SETTING, train=Training(precision=precision))
    seen: set[torch.dtype] = set()
    passes = bare_passes_of(setting)
    expected = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    for kind, run in passes.items():
        seen.clear()
        with Products(seen), run.context() as network:
            run(network)
        assert seen == {torch.float32 if kind == "double" else expected}, kind


class Products(TorchDispatchMode):
    """Notes the precision of convolutions and of their gradients."""

    def __init__(self, seen: set[torch.dtype]):
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "convolution" in str(func):
            self.seen.add(args[0].dtype)
        return func(*args, **(kwargs or {}))


def test_bare_passes_run_through_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda forward: forward)
    state = build_state(SETTING.config(METHODS["sat"]), SETTING.spec, CPU, None)
    batch = SETTING.batch()
    calls: list[int] = []
    compiled = Compiled(state.model, "it")
    compiled.register_forward_hook(lambda module, args, output: calls.append(len(args[0])))
    state.passes.close()  # a model with hooks is not folded
    folded = folded_copy(state.model, batch.x, Features())
    fast = AcceleratedModel(state.model.train(), folded=folded, compiled=compiled)
    for kind, run in bare_passes(fast, batch.x, batch.y).items():
        calls.clear()
        with run.context() as network:
            run(network)
        assert calls == ([6] if kind in ("predict", "update") else []), kind


def test_a_steps_passes_are_timed_in_a_row_and_without_their_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    clock = [0.0]

    @contextmanager
    def context() -> Iterator[nn.Module]:
        events.append("in")
        clock[0] += 100.0
        yield nn.Identity()
        events.append("out")

    def step() -> None:
        events.append("step")
        clock[0] += 7.0

    def run(network: nn.Module) -> None:
        events.append("run")
        clock[0] += 1.0

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    passes = dict.fromkeys(("craft_gradient", "update", "predict"), BarePass(run, context))
    method = TimedMethod("a", (Phase(1.0, step, kinds={"craft_gradient": 5, "update": 1.5}),), bare=passes)
    times = time_methods([method], 1, CPU, warm_up=0)
    assert events == ["in", *["run"] * 5, "out", "in", *["run"] * 2, "out", "step"]
    assert times.bare["a"].seconds == [[6.5]]
    assert times.over_bare("a") == 7 / 6.5


@pytest.mark.parametrize("name", LITERAL_LOSSES)
def test_a_literal_step_is_the_methods(name: str) -> None:
    """The references are slow, not wrong: with the same start, a step is the method's."""
    torch.manual_seed(0)
    ours, theirs, helper = (ResNet(blocks=(1,), width=4).build(SETTING.spec).double() for _ in range(3))
    theirs.load_state_dict(ours.state_dict())
    g = torch.Generator().manual_seed(1)
    x, y = torch.rand(6, 3, 8, 8, generator=g, dtype=torch.double), torch.tensor([0, 1, 2, 0, 1, 2])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs)]
    method = METHODS[name].build(SETTING.spec, helper=helper)
    original, noise = torch.randn_like, torch.randn(x.shape, generator=g, dtype=x.dtype)

    class Draws:
        def normal(self, purpose: str, like: torch.Tensor) -> torch.Tensor:
            return noise

    before = [parameter.detach().clone() for parameter in ours.parameters()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn_like", lambda like: noise)
        patch.setattr(module, "Draws", lambda *_: Draws())
        literal_step(LITERAL_LOSSES[name], theirs, helper.eval(), optimizers[1], x, y)
        ours.train()
        method(ours, Batch(x, y), Clock(1, 0, 2)).total.backward()
        optimizers[0].step()
    assert torch.randn_like is original
    for mine, other, start in zip(ours.parameters(), theirs.parameters(), before, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-11)
        assert not torch.equal(mine, start)
