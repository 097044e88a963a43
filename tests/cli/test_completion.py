"""`uiat completion`: what the script completes in a real shell."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.calls import call, refused
from tests.support.documents import known_flags
from uiat import recipes
from uiat.cli import COMMANDS
from uiat.cli.completion import completion_script
from uiat.data import SOURCES
from uiat.methods import METHODS
from uiat.models import MODELS

BASH = shutil.which("bash") or ""
ZSH = shutil.which("zsh") or ""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "uiat.sh"
    path.write_text(completion_script(), encoding="utf-8")
    return path


def offered(file: Path, *args: str) -> list[str]:
    """Return the completions after the last argument; the path is empty, so no program can be started."""
    code = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _uiat; printf "%s\\n" "${COMPREPLY[@]}"'
    call = [BASH, "--norc", "-c", code, "bash", str(file), "uiat", *args]
    done = subprocess.run(call, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


pytestmark = pytest.mark.skipif(not BASH, reason="there is no bash")


def test_commands(file: Path) -> None:
    assert offered(file, "") == [*COMMANDS, "--help", "--version"]
    assert offered(file, "re") == ["reproduce", "report"]
    assert offered(file, "data", "") == ["info", "pack", "fetch"]


def test_recipes(file: Path) -> None:
    assert offered(file, "train", "") == list(recipes.RECIPES)
    assert offered(file, "train", "digits-resnet8-u") == ["digits-resnet8-uiat", "digits-resnet8-uiat-oneoff"]
    assert offered(file, "train", "digits-resnet8-uiat", "") == []  # files, by `-o default`


@pytest.mark.parametrize(
    ("args", "some"),
    [
        (["train", "--train.b"], ["--train.batch-size"]),
        (
            ["train", "digits-resnet8-uiat", "--method.l"],
            ["--method.label-smoothing", "--method.lam", "--method.lam-align"],
        ),
        (["train", "--method.h"], ["--method.helper", "--method.helper-epochs"]),
        (["train", "--res"], ["--restarts", "--resume"]),
        (["train", "--help"], ["--help", "--help-all"]),
        (["evaluate", "runs/a", "--sa"], ["--sample", "--save-adversaries"]),
        (["data", "pack", "--"], ["--help", "--help-all", "--import", "--out", "--size", "--test-fraction"]),
        (["list", "--n"], ["--names"]),
        (["train", "--precision", ""], ["fp32", "bf16", "fp16"]),
        (["train", "--train.schedule.name", "t"], ["triangular"]),
        (["train", "--data", ""], list(SOURCES)),
        (["evaluate", "w.pt", "--model", ""], list(MODELS)),
        (["evaluate", "w.pt", "--attacks", "autoattack"], ["autoattack", "autoattack-plus"]),
        (["evaluate", "w.pt", "--attacks", "pgd"], ["pgd-20", "pgd-50-10", "pgd-margin-20"]),
        (["evaluate", "w.pt", "--attacks", "natural", ""], []),
        (["predict", "runs/a", "photo.jpg", "--r"], ["--radius"]),
        (["predict", "runs/a", "--attack", "fg"], ["fgsm"]),
        (["predict", "runs/a", ""], []),  # files, by `-o default`
        (["evaluate", ""], []),  # files, by `-o default`
        (["reproduce", "table1", "--only", ""], list(METHODS)),
        (["reproduce", "table1", "--scale", ""], ["smoke", "cpu", "paper"]),
        (["data", "info", "c"], ["cifar10", "cifar100", "cifar100-coarse"]),
        (["list", "re"], ["recipes"]),
        (["completion", ""], ["bash", "zsh"]),
        (["nonsense", "--"], []),
    ],
)
def test_flags_and_their_values(args: list[str], some: list[str], file: Path) -> None:
    assert offered(file, *args) == some


def test_every_flag_there_is(file: Path) -> None:
    found = {flag for command in (*COMMANDS, "data info", "data pack", "data fetch") for flag in _all(file, command)}
    parts = {flag for flag in known_flags() if any(other.startswith(f"{flag}.") for other in found)}
    positional = {"--run", "--runs", "--source", "--folder", "--name", "--names", "--images"}  # arguments, not flags
    assert known_flags() - parts - positional - {"--subject", "--measured", "--imports"} <= found


def _all(file: Path, command: str) -> list[str]:
    return offered(file, *command.split(), "--")


def test_the_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = file.read_text(encoding="utf-8")
    assert call(capsys, "completion", "bash").out == text
    zsh = call(capsys, "completion", "zsh").out
    assert zsh.endswith(text)
    assert "bashcompinit" in zsh.removesuffix(text)
    assert call(capsys, "completion").out.startswith("usage: uiat completion")
    message = refused(capsys, "completion", "csh")
    assert all(word in message for word in ("bash", "zsh", "'csh'"))


@pytest.mark.skipif(not ZSH, reason="there is no zsh")
def test_zsh_loads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "uiat.zsh").write_text(call(capsys, "completion", "zsh").out, encoding="utf-8")
    code = f"source {tmp_path}/uiat.zsh; whence -w _uiat; print $_comps[uiat]"
    done = subprocess.run([ZSH, "-f", "-c", code], capture_output=True, text=True, check=True)
    assert "_uiat: function" in done.stdout
    assert "_bash_complete" in done.stdout
