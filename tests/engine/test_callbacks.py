"""The callback of the loop: it receives every record, does not change the run, and TensorBoard can read the log."""

from pathlib import Path

import pytest
import torch

from tests.support.calls import call, stopped
from tests.support.runs import CPU, STEPS, TINY, assert_same, splits, tiny, unbroken
from uiat.engine.callbacks import LogEvent
from uiat.engine.loop import train
from uiat.runs.run_folder import RunFolder

OWN = """
seen = []

def make(folder, config):
    def log(moment):
        seen.append((folder.name, config.train.epochs, moment.record["kind"], moment.at))
    return log

def nothing(folder, config):
    return None
"""


def test_every_line_is_heard_and_no_bit_changes(tmp_path: Path) -> None:
    config, heard = tiny("uiat"), []

    def listen(moment: LogEvent) -> None:
        heard.append((moment.record, moment.at))
        if moment.record["kind"] == "epoch":
            inverse, natural, adversarial = moment.pictures()
            assert torch.equal(natural, splits(config.data).validation.x[: len(natural)] / 255)
            assert 0 < float((inverse - natural).abs().max()) <= 0.2 + 1e-6
            assert 0 < float((adversarial - natural).abs().max()) <= 0.2 + 1e-6

    run = RunFolder.create(tmp_path / "heard", config)
    assert train(config, run, splits(config.data), CPU, listen)
    assert [record for record, _ in heard] == run.read_metrics()
    assert [at for record, at in heard if record["kind"] == "epoch"] == [STEPS, 2 * STEPS, 3 * STEPS]
    assert [at for record, at in heard if record["kind"] == "step"] == [3, 6, 9, 12]
    assert_same(run, unbroken(config))


def test_tensorboards_file_can_be_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed (the extra `tensorboard`)")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    found = call(capsys, "train", "digits-resnet8-uiat", *TINY, "--log", "tensorboard", "--out", str(out))
    assert found.code == 0, found.err
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    for kind, names in (("epoch", ("loss", "loss_kl", "val_robust", "train_accuracy")), ("step", ("loss", "lr"))):
        lines = [line for line in RunFolder(out).read_metrics() if line["kind"] == kind]
        for name in names:
            scalars = events.Scalars(f"{kind}/{name}")
            assert [event.value for event in scalars] == pytest.approx([line[name] for line in lines], rel=1e-6)
    pictures = events.Images("inverse, natural, adversarial")
    assert [event.step for event in pictures] == [STEPS, 2 * STEPS, 3 * STEPS]
    assert (pictures[0].width, pictures[0].height) == (8 * 8, 3 * 8)


def test_a_custom_logger(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_log.py").write_text(OWN)
    args = ["train", "digits-resnet8-natural", *TINY, "--train.epochs", "1"]
    assert call(capsys, *args, "--log", "own_log:make", "--out", "a").code == 0
    import own_log  # type: ignore[import-not-found]

    assert own_log.seen == [("a", 1, "step", 3), ("a", 1, "epoch", STEPS)]
    assert "return a function" in stopped(capsys, *args, "--log", "own_log:nothing", "--out", "b")
    assert not Path("b").exists()
    assert "has no callable 'other'" in stopped(capsys, *args, "--log", "own_log:other", "--out", "b")
    assert "MODULE:FUNCTION" in stopped(capsys, *args, "--log", "wandb", "--out", "b")
