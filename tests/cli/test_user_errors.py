"""User errors: exit code 2 and one line that names the value, the file or the flag, before any work is done."""

import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.calls import call, missing_facts, refused, refused_flag, stopped
from tests.support.data_files import fill
from tests.support.processes import ROOT, run_uiat
from tests.support.runs import TINY
from uiat import UserError, methods
from uiat.cli import COMMANDS, PACKAGE_NAMES
from uiat.cli.train import check_processes
from uiat.cli.train_options import NewRun
from uiat.runs.run_folder import RunFolder


@pytest.fixture
def here(finished_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run, photos, an empty folder and a file; three cores, and no data sets installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("uiat.data.grey._SYSTEM", tmp_path / "empty")  # Debian's package may be installed
    monkeypatch.setattr("uiat.cli.train.cores", lambda: 3)
    shutil.copytree(finished_run.path, "run")
    fill(tmp_path / "photos", {"a": 6, "b": 6})
    Path("empty").mkdir()
    Path("file").write_text("mine")
    return tmp_path


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if "data" not in path.parts)


ERRORS = {
    # names
    "train digits-resnet8-uait": "digits-resnet8-uiat",
    "train svhn-resnet81-sat": "svhn-resnet18-sat",
    "train --model resnet-18": "resnet18",
    "train --model=wrn-28-1": "wrn-28-10",
    "train --data cifar-10": "cifar10",
    "train --data fashionmnist": "fashion-mnist",
    "evaluate run --data nothing": "nothing known",
    "predict run --top 2": "IMAGE pictures",
    "predict run nothing --data digits": "run --data",
    "predict run nothing --data.size 8": "run --data",
    "predict run nothing --top 0": "--top 0 1",
    "predict run nothing --radius 0": "--radius 0.0 8/255",
    "predict run nothing --radius nan": "--radius nan 8/255",
    "predict run nothing --radius 8": "--radius 8 8/255",
    "predict run nothing --radius 0.1 --attack natural": "--attack natural pgd-20",
    "predict run nothing --radius 0.1 --attack pdg-20": "pdg-20 pgd-20",
    "predict run nothing --batch-size 0": "--batch-size 0 1",
    "predict run nothing --json photos": "photos",
    "predict run empty": "empty pictures .png",
    "predict nothing x.png": "nothing 'run folder' 'weights file'",
    "predict": "TARGET",
    "data fetch photos": "'data set' photos",
    "list --json": "group --json",
    # numbers
    f"train --train.epochs {10**30}": f"train.epochs {10**30} 1 1000000000",
    f"train --train.batch-size {10**23}": f"train.batch_size {10**23} 1 1000000000",
    "train --train.schedule.lr 1e308": "train.schedule.lr 1e+308 0 1000000000",
    "train --train.schedule.warmup 2": "train.schedule.warmup 2.0 0 1",
    "train --train.schedule.milestones 0.5 nan": "train.schedule.milestones nan 0 1",
    "train --method.inverse.beta -1": "method.inverse.beta -1.0 0",
    "train --train.epochs 0": "train.epochs 0 1",
    "train --train.batch-size 0": "train.batch_size 0 1",
    "train --train.micro-batch 0": "train.micro_batch 0 1",
    "train --train.log-every -1": "train.log_every -1 0",
    "train --train.schedule.lr nan": "train.schedule.lr nan 0",
    "train --method.label-smoothing 1.5": "method.label_smoothing 1.5 0 1",
    "train --train.momentum -0.5": "train.momentum -0.5 0 1",
    "train --method.attack.eps -0.1": "method.attack.eps -0.1 0",
    "train --method.attack.step -1/255": "method.attack.step -0.00392156862745098 0",
    "train --method.attack.steps -1": "method.attack.steps -1 0 100000",
    "train --method.inverse.eps inf": "method.inverse.eps inf 0",
    "train --method.lam nan": "method.lam nan 0",
    "train --validate.eps -8/255": "validate.eps -0.03137254901960784 0",
    "train --validate.batch-size 0": "validate.batch_size 0 1",
    "train --data.subset 0": "data.subset 0 1",
    "train --data.validation 5000": "data.validation 5000 1438",
    "train --processes 0": "--processes 0 1",
    "train --processes -1": "--processes -1 1",
    "train --processes 4": "--processes 4 3",
    "train --processes 2 --restarts -1": "--restarts -1 0",
    "train --resume run --processes 0": "--processes 0 1",
    "evaluate run --step -1": "--step -1.0 0",
    "evaluate run --step nan": "--step nan 0",
    "evaluate run --n -3": "--n -3 40 1",
    "evaluate run --n 999": "--n 999 40 1",
    "evaluate run --data.test-subset 0": "data.test_subset 0 1",
    "curves run --n 1": "--n 2",
    "inverse run --beta nan": "--beta nan 0",
    "inverse run --beta -1": "--beta -1.0 0",
    "inverse run --passes 0": "--passes 0 1",
    "bench --threads 0": "--threads 0 1",
    "data info photos --test-fraction 2": "--data.test-fraction 2.0",
    # nothing where something is needed
    "evaluate run --attacks": "--attacks natural fgsm pgd-K",
    "evaluate run --data": "--data",
    "curves run --grid": "grid ε",
    "data info ''": "data images",
    "bench --methods": "--methods natural sat",
    "reproduce table1 --only natural --plan": "table1 --only",
    # devices
    "train --device gpu": "gpu --device cpu",
    "train --device cuda:99": "cuda:99 --device cpu",
    "train --device cpu:x": "cpu:x --device cpu",
    "train --device meta-morph": "meta-morph --device cpu",
    # data
    **{
        f"train --data {name} --data.no-download --data-dir empty": "empty --data-dir"
        for name in ("cifar10", "cifar100", "svhn", "fashion-mnist")
    },
    "data info data.size.npz": "data.size.npz",
    "data info photos --test x.npz": "--data.test photos",
    "data info digits --test x.npz": "--data.test digits",
    "data info svhn": "uiat data fetch",
    "data info empty": "empty images",
    "data info file": "file data",
    "data pack file": "folder file",
    # targets
    "evaluate run/config.json": "run --model",
    "evaluate run/best.safetensors": "run --model",
    "evaluate run/log.txt --model resnet8 --data digits": "run/log.txt weights",
    "evaluate photos": "photos config.json",
    "evaluate nothing": "nothing 'run folder' 'weights file'",
    "curves run --against photos": "photos 'run folder'",
    "export run/best.safetensors": "run/best.safetensors 'run folder'",
    "export empty": "empty 'run folder'",
    # outputs
    "evaluate run --json photos": "photos",
    "evaluate run --json new/": "new/",
    "evaluate run --json no/x.json": "no/x.json",
    "evaluate run --json file/x.json": "file/x.json",
    "evaluate run --json /proc/x.json": "/proc/x.json",
    "evaluate run --json ''": "'cannot write' name",
    "evaluate run --save-adversaries photos": "photos",
    "curves run --out file": "file --out",
    "curves run --out file/deeper": "file/deeper",
    "curves run --out /proc/x": "/proc/x",
    "inverse run --out file": "file --out",
    "inverse run --out /proc/x/y": "/proc/x/y",
    "export run --out file": "file --out",
    "data info photos --json photos": "photos",
    "data pack photos --out run": "run --out",
    "reproduce fig1 --out /proc/x --jobs 1": "/proc/x",
    "reproduce claims --out file": "file --out",
    "bench --json photos": "photos",
    "bench --figure no/x.png": "no/x.png",
    "bench --figure x.txt": "--figure x.txt .png .svg",
    # found only when the network is built
    "train --data.crop 99": "99",
    "train --model.width 0": "model.width 0",
    "train digits-resnet8-hat --method.helper nowhere.safetensors": "nowhere.safetensors",
}


@pytest.mark.parametrize(("command", "facts"), ERRORS.items(), ids=ERRORS)
def test_an_error_before_any_work(
    command: str, facts: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*args: object, **options: object) -> None:
        raise AssertionError("the work has begun")

    for name in ("evaluation.suite.natural_stage", "cli.curves.measure", "cli.inverse.make_inverses"):
        monkeypatch.setattr(f"uiat.{name}", work)
    monkeypatch.setattr("uiat.cli.bench.try_network", work)
    before = files(here)
    assert missing_facts(refused(capsys, *shlex.split(command)), facts) == []
    assert files(here) == before


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("evaluate run --atacks natural", "--attacks"),
        ("evaluate run --n abc", "abc"),
        ("compare run --extra", "extra"),
        ("evaluate run --weights beste", "best"),
        ("export run --onx", "--onnx"),
        ("reproduce table1 --scale big", "smoke"),
        ("data info photos --size 20 30 40", "40"),
    ],
)
def test_an_unknown_flag_or_value(command: str, named: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert named in refused_flag(capsys, *command.split())


@pytest.mark.parametrize(("attack", "meant"), [("pgd-0", "pgd-20"), ("apgd-ce+nix", "apgd-ce")])
def test_an_unknown_attack(attack: str, meant: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = stopped(capsys, "evaluate", "run", "--attacks", attack)  # after a line about the network
    assert missing_facts(message, f"{attack} {meant}") == []


def test_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_processes(NewRun(processes=2), torch.device("cuda"))
    with pytest.raises(UserError, match=r"--processes is 3.* 2 GPU"):
        check_processes(NewRun(processes=3), torch.device("cuda"))


def test_an_unknown_method() -> None:
    with pytest.raises(UserError, match=r"'uait'.*'uiat'"):
        methods.get_method("uait")


def save(path: Path, **arrays: object) -> Path:
    whole: dict[str, object] = {"image": np.zeros((40, 8, 8, 1), np.uint8), "label": np.arange(40) % 4}
    np.savez(path, **{**whole, **arrays})  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(
    ("arrays", "facts"),
    [
        ({"label": np.arange(40) % 4 - 1}, "label -1"),
        ({"label": np.arange(40) % 4, "classes": np.array(["a", "b"])}, "label 3"),
        ({"label": np.full(40, 0.5)}, "integers 0"),
        ({"image": np.full((40, 8, 8, 1), 1.5)}, "1.5 0 1"),
        ({"image": np.full((40, 8, 8, 1), -0.5)}, "-0.5 0 1"),
        ({"image": np.full((40, 8, 8, 1), np.nan)}, "NaN"),
        ({"image": np.zeros((40, 8, 8, 2), np.uint8)}, "1 3 channels"),
        ({"image": np.zeros((40, 4, 4, 1), np.uint8)}, "side 8"),
        ({"image": np.zeros((39, 8, 8, 1), np.uint8)}, "label image"),
        ({"label": np.zeros(40, int)}, "two classes"),
    ],
)
def test_custom_data(arrays: dict[str, object], facts: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "train", "--data", str(save(here / "own.npz", **arrays)))
    assert missing_facts(message, f"{facts} {here / 'own.npz'}") == []
    assert not Path("runs").exists()


def test_damaged_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(here / "own.npz")
    path.write_bytes(path.read_bytes()[:200])
    assert str(path) in refused(capsys, "train", "--data", str(path))
    path.unlink()
    assert str(path) in refused(capsys, "train", "--data", str(path))
    folder = here / "cifar-10-batches-bin"
    folder.mkdir()
    for name in (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(b"broken")
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij"))
    args = ["train", "--data", "cifar10", "--data.no-download", "--data-dir", str(here)]
    assert "data_batch_1.bin" in refused(capsys, *args)
    assert not Path("runs").exists()


def test_valid_custom_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(here / "own.npz", image=np.random.default_rng(0).random((40, 8, 8)))
    args = ["--data", str(path), "--model.width", "4", "--train.epochs", "1"]
    assert call(capsys, "train", *args, "--train.batch-size", "16", "--out", "new").code == 0


def test_a_missing_helper(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["train", "digits-resnet8-hat", *TINY, "--method.helper", "no/where.safetensors", "--out", "new"]
    assert "no/where.safetensors" in stopped(capsys, *args)


@pytest.mark.parametrize(
    ("file", "content", "command", "facts"),
    [
        ("config.json", "{", "evaluate", ""),
        ("config.json", "[]", "evaluate", "schema 1"),
        ("config.json", "{}", "export", "schema 1"),
        ("result.json", "{", "evaluate", ""),
        ("result.json", "[]", "evaluate", "[]"),
        ("result.json", '{"evaluations": 3}', "evaluate", "evaluations 3"),
        ("result.json", '{"evaluations": [3]}', "export", "evaluations [3]"),
        ("data.json", "{", "evaluate", ""),
    ],
)
def test_a_damaged_file(
    file: str, content: str, command: str, facts: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run", file).write_text(content)
    assert missing_facts(refused(capsys, command, "run"), f"run/{file} {facts}") == []


def test_data_of_another_shape(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run/data.json").write_text('{"shape": [3, 8, 8]}')
    assert missing_facts(refused(capsys, "evaluate", "run"), "'3 channels' digits 1") == []


def test_metrics_that_are_not_records(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run/metrics.jsonl").write_text("3\n")
    Path("run/result.json").unlink()
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        RunFolder("run").read_metrics()
    assert call(capsys, "export", "run").code == 0


def test_missing_weights(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Following the advice does not lead to the same error."""
    Path("run/best.safetensors").unlink()
    for command in ("evaluate", "export", "curves", "inverse"):
        facts = "best.safetensors run/last.safetensors '--weights last'"
        assert missing_facts(refused(capsys, command, "run"), facts) == []
    assert call(capsys, "evaluate", "run", "--weights", "last", "--attacks", "natural").code == 0
    Path("run/last.safetensors").unlink()
    message = refused(capsys, "evaluate", "run")
    assert missing_facts(message, "best.safetensors finished train") == []
    assert "--weights" not in message
    Path("run/result.json").unlink()
    Path("run/checkpoint.pt").unlink()
    Path("run/checkpoint.previous.pt").unlink()
    assert missing_facts(refused(capsys, "evaluate", "run"), "train 'another folder'") == []


def test_advice_names_the_flag_of_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(here / "large_data.test", {"a": 4, "b": 4}, size=(1100, 700))
    for command in ("info", "pack"):
        message = refused(capsys, "data", command, "large_data.test")
        assert missing_facts(message, "large_data.test 700×1100 '--data.size 41 64'") == []
        assert call(capsys, "data", command, "large_data.test", "--data.size", "41", "64").code == 0
    assert "--data.size 41 64" in refused(capsys, "train", "--data", "./large_data.test")


@pytest.mark.parametrize(
    ("command", "names", "package"),
    [
        ("train --help", {"tyro"}, "tyro"),
        ("list", set(PACKAGE_NAMES), "(rich|scikit-learn|pillow|tyro|scipy)"),
        ("train digits-resnet8-sat --dry-run", {"sklearn"}, "scikit-learn"),
    ],
)
def test_a_missing_package(command: str, names: set[str], package: str, tmp_path: Path) -> None:
    code, err = run_uiat(tmp_path / "log", *command.split(), without=names)
    assert (code, err.count("\n")) == (2, 1)
    assert re.match(f"uiat: .*`uiat {command.split()[0]}`.*pip install {package}", err)


def test_help_needs_no_package(tmp_path: Path) -> None:
    code, out = run_uiat(tmp_path / "log", "--help", without=PACKAGE_NAMES)
    assert code == 0
    assert all(name in out for name in COMMANDS)


def test_unknown_modules_remain_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("import tyro_custom\n")
    message = stopped(capsys, "list", "--import", "mine.py")
    assert missing_facts(message, "--import mine.py tyro_custom") == []

    def fail(*args: object) -> int:
        raise ModuleNotFoundError("No module named 'rich_custom'", name="rich_custom")

    monkeypatch.setattr("uiat.cli.listing.main", fail)
    with pytest.raises(ModuleNotFoundError, match="rich_custom"):
        call(capsys, "list")


def test_every_declared_package_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"].get("all", ())]
    names = {match[0] for line in declared if (match := re.match(r"[\w-]+", line)) and match[0] != "uiat"}
    assert names - {"torch", "numpy", "safetensors"} <= set(PACKAGE_NAMES.values())
    assert all(name in sys.stdlib_module_names or name.isidentifier() for name in PACKAGE_NAMES)
