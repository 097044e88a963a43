"""Runs with generated images: the table of p covers them, stops change nothing, and evaluation does not read them."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.support.calls import call, missing_facts, refused, stopped
from tests.support.moments import STEP, Killed, at_call, die
from tests.support.runs import CPU, DATA, STEPS, TINY, assert_same, load_checkpoint, snapshot, tiny
from uiat import data
from uiat.config import AWP, AnyConfig, Averaging
from uiat.data.data_config import DataConfig, Generated
from uiat.data.loader import Mixture
from uiat.engine.loop import train
from uiat.rng import Draws
from uiat.runs.run_folder import RunFolder, read_json
from uiat.targets.remembered import PredictionTable
from uiat.types import Batch, DataSpec, View

MORE = 100


@pytest.fixture(autouse=True)
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "store"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noisy digits, in place of generated images."""
    path = tmp_path_factory.mktemp("generated") / "more.npz"
    real = data.load_splits(DATA).test
    g = np.random.default_rng(0)
    which = g.integers(0, len(real), MORE)
    image = real.x.numpy()[which, 0].astype(int) + g.integers(-20, 21, (MORE, 8, 8))
    np.savez(path, image=image.clip(0, 255).astype(np.uint8), label=real.y.numpy()[which])
    return path


def config(file: Path, method: str = "uiat", **changes: Any) -> AnyConfig:
    plan = tiny(method, checkpoint_minutes=0.0, **changes)
    return replace(plan, data=replace(DATA, generated=Generated(str(file), 0.3)))


@cache
def splits(choice: DataConfig) -> data.Splits:
    return data.load_splits(choice, training=True)


def resume_run(run: RunFolder) -> bool:
    plan = run.read_config()
    return train(plan, run, splits(plan.data), CPU)


@pytest.mark.parametrize("method", ["sat", "uiat-oneoff"])
def test_a_stop_changes_nothing(method: str, file: Path, tmp_path: Path) -> None:
    """With averaging and weight perturbation."""
    plan = config(file, method, averaging=Averaging(True), awp=AWP(True))
    whole, run = (RunFolder.create(tmp_path / name, plan) for name in ("whole", "run"))
    assert resume_run(whole)
    for step in (2, 2 * STEPS - 3):
        with at_call(STEP, step, die), pytest.raises(Killed):
            resume_run(run)
    assert resume_run(run)
    assert_same(run, snapshot(whole))


@pytest.mark.parametrize(("method", "precision"), [("uiat", "float16"), ("uiat-oneoff", "float32")])
def test_the_table_covers_them(method: str, precision: str, file: Path, tmp_path: Path) -> None:
    plan = config(file, method)
    part: Any = plan.method
    name = "momentum" if method == "uiat" else "one_off"
    part = replace(part, **{name: replace(getattr(part, name), precision=precision)})
    run = RunFolder.create(tmp_path / "run", replace(plan, method=part))
    assert resume_run(run)
    table = load_file(run.path / load_checkpoint(run)["table_file"])
    log_p, seen = (next(v for k, v in table.items() if k.endswith(end)) for end in ("log_p", "seen"))
    assert log_p.shape == (60 + MORE, 10)
    assert log_p.dtype == getattr(torch, precision)
    mixture = Mixture(60, MORE, 16, 0.3, plan.seed)
    first = 0 if method == "uiat" else STEPS  # uiat's table begins with T − 1, the other's with T'
    visited = torch.cat([mixture.at(step) for step in range(first, 3 * STEPS)]).unique()
    assert seen.nonzero().flatten().tolist() == visited.tolist()
    assert 60 < len(visited) <= 60 + MORE
    torch.testing.assert_close(log_p[seen].float().exp().sum(1), torch.ones(int(seen.sum())), rtol=0, atol=5e-3)


def test_half_precision_is_close() -> None:
    """log p is off by half a unit in the last of fp16's 11 bits, and the probabilities sum up to 1 again."""
    spec, index = DataSpec(5, 20, (1,)), torch.arange(0, 20, 2)
    log_p = (6 * torch.randn(10, 5, generator=torch.Generator().manual_seed(0))).log_softmax(dim=1)
    batch = Batch(torch.zeros(10, 1), torch.zeros(10, dtype=torch.long), index)
    view = View(nn.Identity(), batch, batch.x, Draws(), "eval")
    table = PredictionTable(spec, "float16")
    table.store(view, log_p)
    found, seen = table.recall(view)
    assert bool(seen.all())
    assert not torch.equal(found, log_p)
    # Both the stored number and the normalisation are off by at most that.
    assert bool(((found - log_p).abs() <= 2**-11 * (log_p.abs() + log_p.abs().amax(dim=1, keepdim=True))).all())
    torch.testing.assert_close(found.exp().sum(dim=1), torch.ones(10))


def test_the_card_and_the_command_line(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = tmp_path / "more.npz"
    moved.write_bytes(file.read_bytes())
    out = str(tmp_path / "run")
    assert call(capsys, "train", *TINY, "--data.generated.file", str(moved), "--out", out).code == 0
    assert read_json(tmp_path / "run" / "result.json")["data"]["generated"] == MORE
    moved.unlink()
    assert call(capsys, "evaluate", out, "--n", "20", "--attacks", "natural").code == 0
    assert call(capsys, "export", out).code == 0
    message = refused(capsys, "train", *TINY, "--data.generated.file", str(moved), "--out", str(tmp_path / "b"))
    assert missing_facts(message, str(moved)) == []
    assert not (tmp_path / "b").exists()
    share = ["--data.generated.original", "1.5", "--data.generated.file", str(file)]
    message = refused(capsys, "train", *TINY, *share, "--out", str(tmp_path / "b"))
    assert missing_facts(message, "data.generated.original 1.5 0 1") == []


@pytest.mark.parametrize(("part", "known"), [("image", "data.json"), ("label", "checkpoint")])
def test_other_generated_images_of_the_same_number_are_refused(
    part: str, known: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, out = tmp_path / "copy.npz", tmp_path / "run"
    copy.write_bytes(file.read_bytes())
    flags = ["--data.generated.file", str(copy), "--data.generated.original", "0.5"]
    with at_call(STEP, STEPS + 2, die), pytest.raises(Killed):
        call(capsys, "train", "digits-resnet8-natural", *TINY, *flags, "--out", str(out))
    with np.load(file) as arrays:
        content = dict(arrays)
    content[part] = content[part][::-1].copy()
    np.savez(copy, **content)
    if known == "checkpoint":
        RunFolder(out).data.unlink()
    resume = ("train", "--resume", str(out), "--device", "cpu")
    assert "its generated images" in stopped(capsys, *resume)
    copy.write_bytes(file.read_bytes())
    assert call(capsys, *resume).code == 0
