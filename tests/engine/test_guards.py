"""A loss or gradient that is not finite never changes the weights: the run stops, or the batch is skipped."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from tests.support.calls import stopped
from tests.support.failing_network import LARGE, ROW, Faulty, run_process, script
from tests.support.moments import STEP, Killed, at_call, die
from tests.support.processes import fork_ranks
from tests.support.runs import (
    CPU,
    STEPS,
    assert_same,
    begin,
    load_checkpoint,
    resume_run,
    snapshot,
    splits,
    tiny,
    unbroken,
)
from uiat.cli import main
from uiat.config import AnyConfig
from uiat.engine import loop
from uiat.engine.guards import find_fault
from uiat.engine.setup import build_loader, build_state
from uiat.engine.state import State
from uiat.errors import UserError
from uiat.methods import METHODS
from uiat.methods.step_snapshot import StepSnapshot
from uiat.runs.run_folder import RunFolder, read_json
from uiat.types import Batch, Clock, Loss

WHAT = {
    "sample": "the part 'ce' of the loss",
    "logits": "the part 'ce' of the loss",
    "gradient": "the gradient of 'conv.weight'",
    "overflow": "the running variance of 'bn'",
}


def config(method: str = "uiat", **changes: Any) -> AnyConfig:
    return replace(tiny(method, **changes), model=Faulty())


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def refused(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error message with which a run ends."""
    return stopped(capsys, "train", "--resume", str(run.path), "--device", "cpu")


@pytest.mark.parametrize("kind", WHAT)
def test_a_run_stops_and_resumes_once_the_cause_is_gone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = config(fast=kind != "overflow")  # in channels_last memory the layer itself gives NaN, and the loss is named
    run = RunFolder.create(tmp_path / "run", plan)
    kept: dict[str, bytes] = {}

    def keep() -> None:
        kept.update({path.name: path.read_bytes() for path in run.path.glob("*[tms]")})

    with script(kind, (2, 3)), at_call("uiat.engine.loop.respond", 1, keep, before=True):
        message = refused(run, capsys)
    file = run.path / "nonfinite-2-3.safetensors"
    for args in (f"{WHAT[kind]} is not finite in epoch 2, step 3", str(file), "--on-nonfinite skip"):
        assert args in message
    assert {run.checkpoint.name, run.best.name, run.last.name} <= kept.keys()
    log, before_log = run.log.read_text(), kept.pop(run.log.name).decode()
    assert log.startswith(before_log)
    assert log.endswith(f"the run stops: {message}\n")
    assert all((run.path / name).read_bytes() == before for name, before in kept.items())

    tensors, facts = read(file)
    assert facts == {"what": WHAT[kind], "epoch": "2", "step": "3"}
    assert tensors["x"].shape == tensors["x_adv"].shape == (16, 1, 8, 8)
    train = splits(config().data).train
    assert torch.equal(tensors["y"], train.y[tensors["index"]])
    rows = [ROW] if kind in LARGE else list(range(16))
    assert tensors["offending"].nonzero().flatten().tolist() == rows
    named = ", ".join(str(i) for i in tensors["index"][rows[:8]].tolist())
    assert f"(training samples {named}{'' if kind in LARGE else ' and 8 more'})" in message

    file.unlink()
    with script():
        assert resume_run(run)
        assert_same(run, unbroken(plan))


def test_without_an_attack_there_is_no_adversary_to_save(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", config("natural", micro_batch=5))
    with script("logits", (1, 1)), pytest.raises(UserError, match=r"\(training samples (\d+, ){7}\d+ and 8 more\)"):
        resume_run(run)
    assert not run.checkpoint.exists()
    tensors, _ = read(run.path / "nonfinite-1-1.safetensors")
    assert tensors.keys() == {"x", "y", "index", "offending"}
    assert len(tensors["x"]) == 16  # all micro-batches


@contextmanager
def omitted(*places: tuple[int, int]) -> Iterator[None]:
    """Within it, these steps are skipped without any other effect."""
    original: Any = vars(loop)["train_step"]

    def sometimes(state: State, batch: Any, clock: Clock, **settings: Any) -> Any:
        return None if (clock.epoch, clock.step + 1) in places else original(state, batch, clock, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", sometimes)
        yield


PLACES = ((1, 1), (2, 3), (2, 4))


@pytest.mark.parametrize(
    ("method", "kind", "micro_batch"),
    [("uiat", "gradient", 5), ("n-fgsm-uiat", "sample", 5), ("sat", "overflow", None)],
)
def test_a_skipped_step_has_no_effect(method: str, kind: str, micro_batch: int | None, tmp_path: Path) -> None:
    settings = config(method, on_nonfinite="skip", micro_batch=micro_batch)
    with script(kind, *PLACES):
        run = begin(settings, tmp_path / "run")
    with script(), omitted(*PLACES):
        whole = snapshot(begin(settings, tmp_path / "whole"))
    found = snapshot(run)
    differing = {name for name in whole if found[name] != whole[name]}
    assert {name for name in differing if "skipped" not in name and "passes" not in name} == set()
    assert [line["skipped"] for line in run.read_metrics("epoch")] == [1, 2, 0]
    log = run.log.read_text()
    assert log.count("steps skipped, their loss or gradient not finite") == 2
    assert "epoch 2: 2 of 4 steps skipped" in log
    assert not list(run.path.glob("nonfinite-*"))
    assert all(tensor.isfinite().all() for tensor in leaves(load_checkpoint(run)))


def leaves(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_undone(method: str) -> None:
    """A skipped step leaves every tensor of model, method and optimiser unchanged."""
    settings = replace(tiny(method), model=Faulty())
    state = build_state(settings, splits(settings.data).spec, CPU, settings.model.build(splits(settings.data).spec))
    batches = build_loader(settings, splits(settings.data).train, CPU)

    def contents() -> dict[str, Any]:
        parts: list[Any] = [state.model, state.method, state.optimizer, state.meter]
        return copy.deepcopy({type(part).__name__: part.state_dict() for part in parts})

    with script("sample", (1, 2), (2, 3), (3, 1)):
        for epoch in (1, 2, 3):
            for number, batch in batches.epoch(epoch):
                before = contents()
                fault = vars(loop)["train_step"](state, batch, Clock(epoch, number, 3), lr=0.1, undo=True)
                assert (fault is not None) == ((epoch, number + 1) in ((1, 2), (2, 3), (3, 1)))
                if fault is not None:
                    assert all(torch.equal(a, b) for a, b in zip(leaves(before), leaves(contents()), strict=True))
                    assert all(parameter.grad is None for parameter in state.model.parameters())
                assert all(tensor.isfinite().all() for tensor in leaves(contents()))


def test_only_the_batchs_rows_are_kept_for_undoing() -> None:
    settings = config()
    spec = replace(splits(settings.data).spec, num_classes=1000)
    state = build_state(settings, spec, CPU, None)
    batch = Batch(torch.rand(4, *spec.shape), torch.tensor([5, 7, 7, 999]), torch.tensor([3, 1, 4, 2]))
    before = StepSnapshot(state.model, state.method, batch)
    kept = sum(t.numel() for t in [*before.buffers.values(), *(rows for _, _, rows in before.rows)])
    assert kept < 10 * 1000
    saved = copy.deepcopy(state.method.state_dict())
    for name, buffer in state.method.named_buffers():
        buffer[batch.index if "table" in name else batch.y] = 1
    assert any(not torch.equal(saved[name], tensor) for name, tensor in state.method.state_dict().items())
    before.restore()
    assert all(torch.equal(saved[name], tensor) for name, tensor in state.method.state_dict().items())


def test_a_run_that_skips_steps_resumes_in_the_same_bits(tmp_path: Path) -> None:
    settings = config(on_nonfinite="skip", checkpoint_minutes=0.0)
    with script("sample", (2, 2), (2, 4)):
        whole = snapshot(begin(settings, tmp_path / "whole"))
        run = RunFolder.create(tmp_path / "run", settings)
        with at_call(STEP, STEPS + 3, die), pytest.raises(Killed):
            resume_run(run)
        assert load_checkpoint(run)["skipped"] == 1
        assert resume_run(run)
    assert_same(run, whole)


def test_a_stopped_run_may_skip_its_batch_when_it_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with script("sample", (2, 3)):
        run = RunFolder.create(tmp_path / "run", config())
        refused(run, capsys)
        (run.path / "nonfinite-2-3.safetensors").unlink()
        assert main(["train", "--resume", str(run.path), "--device", "cpu", "--on-nonfinite", "skip"]) == 0
    assert read_json(run.config)["train"]["on_nonfinite"] == "skip"
    assert [line.get("skipped", 0) for line in run.read_metrics("epoch")] == [0, 1, 0]
    (entry,) = run.read_card()["resumed"]
    assert (entry["epoch"], entry["changes"]["train.on_nonfinite"]) == (2, ["stop", "skip"])


@pytest.mark.parametrize(("batch_size", "steps"), [(16, 3), (60, 1)], ids=["three", "all"])
def test_too_many_skipped_steps(
    batch_size: int, steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder.create(tmp_path / "run", config(on_nonfinite="skip", batch_size=batch_size))
    with script("logits", *((2, k + 1) for k in range(steps))):
        message = refused(run, capsys)
    assert f"{steps} of the {-(-60 // batch_size)} steps of epoch 2 were not finite" in message
    assert f"step {steps}, it was the part 'ce' of the loss" in message
    assert (run.path / f"nonfinite-2-{steps}.safetensors").exists()
    assert str(run.path / f"nonfinite-2-{steps}.safetensors") in message
    assert load_checkpoint(run)["epoch"] == 2
    assert all(tensor.isfinite().all() for tensor in leaves(load_checkpoint(run)))


@pytest.mark.parametrize("value", [1e30, torch.nan, torch.inf])
def test_a_gradient_may_be_huge(value: float) -> None:
    """The norm of values of 1e30 is infinite in single precision, but none of them is."""
    model = nn.Linear(4, 4)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e30)
    assert model.bias.grad is not None
    model.bias.grad[1] = value
    found = find_fault(model, [Loss(torch.tensor(1.0), {})], [], Clock(1, 0, 1))
    assert (found.what if found else None) == (None if value == 1e30 else "the gradient of 'bias'")


def on_two(tmp_path: Path, kind: str, **changes: Any) -> tuple[RunFolder, list[int], list[str]]:
    """Run on two processes of which the second fails at epoch 2, step 3; return exit codes and outputs."""
    with script():
        run = RunFolder.create(tmp_path / "run", config(**changes))
    command = ["train", "--resume", str(run.path), "--device", "cpu"]
    ends = fork_ranks(tmp_path, 2, run_process, kind, 1, [(2, 3)], tmp_path / "end", command)
    return run, [code for code, _ in ends], [said for _, said in ends]


def test_two_processes_stop_together(tmp_path: Path) -> None:
    run, codes, said = on_two(tmp_path, "sample")
    assert codes == [2, 2], said
    file = run.path / "nonfinite-2-3.safetensors"
    assert [path.name for path in run.path.glob("nonfinite-*")] == [file.name]
    tensors, _ = read(file)
    assert len(tensors["x"]) == len(tensors["x_adv"]) == 16  # the batch of both processes
    assert torch.equal(tensors["y"], splits(config().data).train.y[tensors["index"]])
    assert tensors["offending"].nonzero().flatten().tolist() == [8 + ROW]
    message = said[0].splitlines()[-1]
    assert f"step 3 (training samples {tensors['index'][8 + ROW]})" in message
    assert str(file) in message
    assert "nonfinite" not in said[1]  # one of several processes prints
    with script():
        saved = load_checkpoint(run)
    assert (saved["epoch"], saved["step"]) == (2, 0)


def test_two_processes_skip_a_step_together(tmp_path: Path) -> None:
    run, codes, said = on_two(tmp_path, "sample", on_nonfinite="skip")
    assert codes == [0, 0], said
    assert [line["skipped"] for line in run.read_metrics("epoch")] == [0, 1, 0]
    one, other = (torch.load(f"{tmp_path / 'end'}.{rank}", weights_only=True) for rank in (0, 1))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert all(tensor.isfinite().all() for tensor in one.values())
    assert json.loads(run.result.read_text())["processes"] == 2
