"""What a person gets wrong before a run begins: one sentence, exit code 2, and no folder is left behind."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.calls import call, refused
from tests.support.processes import finish, spawn
from tests.support.runs import TINY
from uiat import UserError, methods
from uiat.cli import main
from uiat.cli.train import check_processes
from uiat.runs.run_folder import RunFolder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


def refused_run(capsys: pytest.CaptureFixture[str], out: Path, *args: str) -> str:
    sentence = refused(capsys, "train", *args, "--out", str(out), "--device", "cpu")
    assert not out.exists()
    return sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("digits-resnet8-uait", "unknown recipe 'digits-resnet8-uait': did you mean 'digits-resnet8-uiat'?"),
        ("svhn-resnet81-sat", "unknown recipe 'svhn-resnet81-sat': did you mean 'svhn-resnet18-sat'?"),
        ("--model resnet-18", "unknown model 'resnet-18': did you mean 'resnet18'?"),
        ("--model=wrn-28-1", "unknown model 'wrn-28-1': did you mean 'wrn-28-10'?"),
        ("--data cifar-10", "unknown data set 'cifar-10': did you mean 'cifar10'?"),
        ("--data fashionmnist", "unknown data set 'fashionmnist': did you mean 'fashion-mnist'?"),
    ],
)
def test_an_unknown_name(words: str, sentence: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused_run(capsys, out, *words.split()) == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--processes 0", "--processes is 0: give at least 1."),
        ("--processes -1", "--processes is -1: give at least 1."),
        ("--processes 4", "--processes is 4, and there are 3 core(s) here: give at most 3."),
        ("--processes 2 --restarts -1", "--restarts is -1: give at least 0."),
    ],
)
def test_a_number_of_processes(
    words: str, sentence: str, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uiat.cli.train.cores", lambda: 3)
    assert refused_run(capsys, out, *words.split()) == sentence


def test_a_number_of_processes_to_go_on_with(run_copy: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refused(capsys, "train", "--resume", str(run_copy.path), "--processes", "0")
    assert sentence == "--processes is 0: give at least 1."


def test_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_processes(2, 3, torch.device("cuda"))
    with pytest.raises(UserError, match=r"--processes is 3, and there are 2 GPU\(s\) here: give at most 2\."):
        check_processes(3, 3, torch.device("cuda"))


def test_an_unknown_method() -> None:
    with pytest.raises(UserError, match="unknown method 'uait': did you mean 'uiat'"):
        methods.get_method("uait")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (f"--train.epochs {10**30}", f"train.epochs is {10**30}: give at least 1 and at most 1000000000."),
        (f"--train.batch-size {10**23}", f"train.batch_size is {10**23}: give at least 1 and at most 1000000000."),
        ("--train.schedule.lr 1e308", "train.schedule.lr is 1e+308: give at least 0 and at most 1000000000."),
        ("--train.schedule.warmup 2", "train.schedule.warmup is 2.0: give at least 0 and at most 1."),
        ("--train.schedule.milestones 0.5 nan", "train.schedule.milestones is nan: give at least 0 and at most 1."),
        ("--method.inverse.beta -1", "method.inverse.beta is -1.0: give at least 0."),
        ("--train.epochs 0", "train.epochs is 0: give at least 1."),
        ("--train.batch-size 0", "train.batch_size is 0: give at least 1."),
        ("--train.micro-batch 0", "train.micro_batch is 0: give at least 1."),
        ("--train.log-every -1", "train.log_every is -1: give at least 0."),
        ("--train.schedule.lr nan", "train.schedule.lr is nan: give at least 0."),
        ("--method.label-smoothing 1.5", "method.label_smoothing is 1.5: give at least 0 and at most 1."),
        ("--train.momentum -0.5", "train.momentum is -0.5: give at least 0 and at most 1."),
        ("--method.attack.eps -0.1", "method.attack.eps is -0.1: give at least 0."),
        ("--method.attack.step -1/255", "method.attack.step is -0.00392156862745098: give at least 0."),
        ("--method.attack.steps -1", "method.attack.steps is -1: give at least 0 and at most 100000."),
        ("--method.inverse.eps inf", "method.inverse.eps is inf: give at least 0."),
        ("--method.lam nan", "method.lam is nan: give at least 0."),
        ("--validate.eps -8/255", "validate.eps is -0.03137254901960784: give at least 0."),
        ("--validate.batch-size 0", "validate.batch_size is 0: give at least 1."),
        ("--data.subset 0", "data.subset is 0: give at least 1."),
        ("--data.validation 5000", "data.validation is 5000 of 1438 training images: give 1 to 1437."),
    ],
)
def test_a_number_out_of_range(words: str, sentence: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused_run(capsys, out, *words.split()) == sentence


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "cpu:x", "meta-morph"])
def test_a_device_that_is_not_there(device: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refused(capsys, "train", *TINY, "--out", str(out), "--device", device)
    assert sentence == f"the device {device!r} cannot be used here: give --device cpu, or omit it."
    assert not out.exists()


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "fashion-mnist"])
def test_missing_data(
    name: str, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr("uiat.data.grey._SYSTEM", empty)  # Debian's package may be installed
    words = ["--data", name, "--data.no-download", "--data-dir", str(empty)]
    sentence = refused_run(capsys, out, *words)
    assert str(empty) in sentence
    assert "--data-dir" in sentence


def test_corrupt_data(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(b"broken")
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    sentence = refused_run(capsys, out, "--data", "cifar10", "--data.no-download", "--data-dir", str(tmp_path))
    assert "data_batch_1.bin" in sentence


def save(path: Path, **arrays: object) -> Path:
    whole: dict[str, object] = {"image": np.zeros((40, 8, 8, 1), np.uint8), "label": np.arange(40) % 4}
    np.savez(path, **{**whole, **arrays})  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"label": np.arange(40) % 4 - 1}, "has label -1"),
        ({"label": np.arange(40) % 4, "classes": np.array(["a", "b"])}, "has label 3"),
        ({"label": np.full(40, 0.5)}, "give integers from 0"),
        ({"image": np.full((40, 8, 8, 1), 1.5)}, "has the pixel value 1.5, outside 0 to 1"),
        ({"image": np.full((40, 8, 8, 1), -0.5)}, "has the pixel value -0.5, outside 0 to 1"),
        ({"image": np.full((40, 8, 8, 1), np.nan)}, "NaN pixels"),
        ({"image": np.zeros((40, 8, 8, 2), np.uint8)}, "with 1 or 3 channels"),
        ({"image": np.zeros((40, 4, 4, 1), np.uint8)}, "each side needs at least 8"),
        ({"image": np.zeros((39, 8, 8, 1), np.uint8)}, "give one label per image"),
        ({"label": np.zeros(40, int)}, "fewer than two classes"),
    ],
)
def test_ones_own_data(
    arrays: dict[str, object], sentence: str, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused_run(capsys, out, "--data", str(save(tmp_path / "own.npz", **arrays)))


def test_a_corrupt_npz(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "own.npz")
    path.write_bytes(path.read_bytes()[:200])
    assert f"{path} cannot be read as an .npz file" in refused_run(capsys, out, "--data", str(path))
    path.unlink()
    assert f"there is no file {path}" in refused_run(capsys, out, "--data", str(path))


def test_good_data_of_ones_own_is_taken(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "own.npz", image=np.random.default_rng(0).random((40, 8, 8)))
    words = ["--data", str(path), "--model.width", "4", "--train.epochs", "1", "--method.attack.steps", "1"]
    assert call(capsys, "train", *words, "--train.batch-size", "16", "--out", str(out)).code == 0


def test_a_helper_that_is_not_there(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["digits-resnet8-hat", *TINY, "--method.helper", str(out / "nowhere.safetensors"), "--out", str(out)]
    found = call(capsys, "train", *words)
    assert found.code == 2
    assert "there are no weights at" in found.err.splitlines()[-1]


def test_bad_data_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", image=np.full((40, 8, 8, 1), np.nan))
    code, out, err = finish(spawn("uiat", "train", "--data", str(path), "--out", str(tmp_path / "run")))
    assert (code, out) == (2, "")
    assert err == f"uiat: `image` of {path} has NaN pixels: remove them.\n"


@pytest.mark.parametrize(
    "flags",
    [["--data.crop", "99"], ["--model.width", "0"], ["digits-resnet8-hat", "--method.helper", "nowhere.safetensors"]],
    ids=["crop", "width", "helper"],
)
def test_a_mistake_found_late_leaves_no_run_folder(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", *flags, "--out", str(out)]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not out.exists()
