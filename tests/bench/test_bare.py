"""The bare passes: precision and compiled forward of the steps they are held against, and nothing else timed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.bench.setting import CPU, SETTING
from uiat.bench.baselines import BarePass, bare_passes
from uiat.bench.race import race
from uiat.bench.timed import Phase, TimedMethod, bare
from uiat.config import Training
from uiat.engine.setup import build_state
from uiat.methods import METHODS
from uiat.methods.passes import Need
from uiat.models.compiled import Compiled
from uiat.models.fast import FastModel


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_bare_passes_have_the_precision_of_the_setting(precision: Any) -> None:
    setting = replace(SETTING, train=Training(precision=precision))
    seen: set[torch.dtype] = set()
    passes = bare(setting)
    expected = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    for kind, run in passes.items():
        seen.clear()
        with Products(seen), run.within() as network:
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
    fast = FastModel(state.model.train(), compiled=compiled)
    for kind, run in bare_passes(fast, batch.x, batch.y).items():
        calls.clear()
        with run.within() as network:
            run(network)
        assert calls == ([6] if kind in ("predict", "update") else []), kind


def test_a_steps_passes_are_timed_in_a_row_and_without_their_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[str] = []
    clock = [0.0]

    @contextmanager
    def within() -> Iterator[nn.Module]:
        words.append("in")
        clock[0] += 100.0
        yield nn.Identity()
        words.append("out")

    def step() -> None:
        words.append("step")
        clock[0] += 7.0

    def run(network: nn.Module) -> None:
        words.append("run")
        clock[0] += 1.0

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    passes = dict.fromkeys(("craft_gradient", "update", "predict"), BarePass(run, within))
    method = TimedMethod("a", (Phase(1.0, Need(craft_gradient=5, update=1.5), step),), bare=passes)
    times = race([method], 1, CPU, warm_up=0)
    assert words == ["in", *["run"] * 5, "out", "in", *["run"] * 2, "out", "step"]
    assert times.bare["a"].seconds == [[6.5]]
    assert times.over_bare("a") == 7 / 6.5
