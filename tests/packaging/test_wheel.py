"""The wheel and the sdist: built, checked, installed into an empty environment, and used from another folder."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEGABYTE = 1 << 20
PLUG_IN = """
import sys, torch, uiat
from torch import nn
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
x, y = torch.rand(8, 1, 8, 8), torch.arange(8)
method = uiat.UIAT().build(uiat.DataSpec(num_classes=10, num_samples=8, shape=(1, 8, 8)))
method(model, uiat.Batch(x, y, torch.arange(8)), uiat.Clock(1, 0, 30)).total.backward()
result = uiat.evaluate(model, x, y, attacks=("natural", "pgd-20"))
assert list(result) == ["natural", "pgd-20"]
print(uiat.__file__)
"""
AUTOATTACK = """
try:
    uiat.evaluate(model, x, y, attacks=("autoattack",))
except uiat.UserError as error:
    assert "pip install pyautoattack" in str(error)
else:
    raise AssertionError("no word of a package that is missing")
"""
NEEDED = {"torch", "numpy", "safetensors", "rich"}
"""What `pip install uiat` brings, besides what these bring themselves."""
BLOCKED = {"matplotlib", "tyro", "sklearn", "scipy", "pooch", "requests", "tqdm", "PIL", "jinja2", "pyautoattack"}
WITHOUT = f"""
import sys
from importlib.machinery import PathFinder
class Lacking(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {BLOCKED!r} else PathFinder.find_spec(name, path, target)
sys.meta_path = [Lacking if finder is PathFinder else finder for finder in sys.meta_path]
"""
"""Hides what only the command line, data sets, reports and AutoAttack need."""


def run(*command: str | Path, cwd: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
    args = [str(word) for word in command]
    return subprocess.run(
        args, cwd=cwd, env={**environment, "OMP_NUM_THREADS": "1", **more}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy of the files in git only."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        run("cp", "-r", ROOT / name, source, cwd=ROOT)
    run("find", source, "-name", "*.egg-info", "-prune", "-exec", "rm", "-r", "{}", "+", cwd=ROOT)
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment with the wheel, which uses the dependencies of this environment.

    A folder that a `.pth` file names has its own `.pth` files ignored, so the editable install does not come along.
    """
    folder = tmp_path_factory.mktemp("environment")
    made = run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    assert made.returncode == 0, made.stderr
    interpreter = folder / "bin" / "python"
    (wheel,) = dist.glob("*.whl")
    place = run(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip()
    (Path(place) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps", "--no-index", "--quiet")
    done = run(*pip, wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return interpreter


def test_the_metadata_is_valid(dist: Path) -> None:
    done = run(sys.executable, "-m", "twine", "check", "--strict", *sorted(dist.iterdir()), cwd=dist)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_the_wheel_is_small_and_has_everything(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.stat().st_size < MEGABYTE
    with zipfile.ZipFile(wheel) as content:
        packed = {name for name in content.namelist() if name.startswith("uiat/")}
    kept = {f"uiat/{path.relative_to(ROOT / 'src' / 'uiat').as_posix()}" for path in (ROOT / "src/uiat").rglob("*")}
    source = {name for name in kept if (ROOT / "src" / name).is_file() and "__pycache__" not in name}
    assert packed == source


def test_it_trains_a_step_from_another_folder(python: Path, tmp_path: Path) -> None:
    command = python.parent / "uiat"
    small = ("--train.epochs", "1", "--data.subset", "64", "--train.batch-size", "64", "--validate.steps", "1")
    done = run(command, "train", "digits-resnet8-uiat", *small, "--out", "run", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()
    assert str(ROOT) not in done.stdout + done.stderr


def test_the_plug_in_needs_few_packages(python: Path, tmp_path: Path) -> None:
    done = run(python, "-c", WITHOUT + PLUG_IN + AUTOATTACK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(python.parents[1])


def test_what_it_asks_for_is_what_the_plug_in_needs(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        (name,) = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
        lines = content.read(name).decode().splitlines()
    required = [line.split()[1] for line in lines if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert {word.partition("<")[0].partition(">")[0] for word in required} == NEEDED


@pytest.mark.slow
def test_pip_finds_what_it_asks_for(dist: Path, tmp_path: Path) -> None:
    """Install the wheel with nothing else, as a user does; needs a package index."""
    (wheel,) = dist.glob("*.whl")
    assert run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path).returncode == 0
    python = tmp_path / "env" / "bin" / "python"
    done = run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run(python, "-c", PLUG_IN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
