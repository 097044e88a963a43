"""Every network family, exported and loaded without `uiat`: the same logits, bit by bit."""

import ast
import py_compile
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.support.exports import COLOUR, FAMILIES, GREY, images, make_run, read_logits
from uiat.export.exported_folder import write_folder
from uiat.export.loaded_run import load_run
from uiat.export.script import write_scripts
from uiat.models import ResNet, networks


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Tensor, Tensor]]:
    """Export every family; all are read by one process, since starting one takes longer than all the rest."""
    root = tmp_path_factory.mktemp("exports")
    expected: dict[str, Tensor] = {}
    for name, (model, data) in FAMILIES.items():
        run, expected[name] = make_run(root / name, model, data)
        write_folder(load_run(run.path, "best", None), root / name / "export")
    folders = {root / name / "export": images(data) for name, (_, data) in FAMILIES.items()}
    found = read_logits(folders, isolated=True)
    return {name: (root / name / "export", expected[name], found[k]) for k, name in enumerate(FAMILIES)}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_logits_are_the_same_bits(name: str, exports: dict[str, tuple[Path, Tensor, Tensor]]) -> None:
    _, expected, found = exports[name]
    assert torch.equal(found, expected)
    assert found.std() > 0.01  # else the test could not detect a difference


@pytest.mark.parametrize("name", FAMILIES)
def test_the_script_stands_on_its_own(name: str, exports: dict[str, tuple[Path, Tensor, Tensor]]) -> None:
    script = exports[name][0] / "model.py"
    py_compile.compile(str(script), doraise=True, cfile=str(script.with_name("compiled")))
    tree = ast.parse(script.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    packages = {module.split(".")[0] for module in imported} - set(sys.stdlib_module_names)
    assert packages == {"torch", "safetensors"}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names.isdisjoint({"data", "DataSpec", "UserError", "unknown"})


@pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed")
def test_the_scripts_are_clean(exports: dict[str, tuple[Path, Tensor, Tensor]]) -> None:
    scripts = [str(folder / name) for folder, _, _ in exports.values() for name in ("model.py", "example.py")]
    for command in (["check", "--isolated", "--select", "F,E,W,I"], ["format", "--isolated", "--check"]):
        args = [sys.executable, "-m", "ruff", *command, "--no-cache", "--line-length", "120", *scripts]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_the_file_of_the_networks_is_copied_unchanged() -> None:
    source = Path(networks.__file__).read_text(encoding="utf-8")
    for model, data in FAMILIES.values():
        texts = write_scripts(model, data)
        assert list(texts) == ["model.py"]
        assert texts["model.py"].count(source) == 1
        assert len(texts["model.py"].splitlines()) < len(source.splitlines()) + 45


def test_the_facts_of_the_data_are_constants() -> None:
    text = write_scripts(ResNet(width=4), GREY)["model.py"]
    assert "DATA = SimpleNamespace(num_classes=10, num_samples=60, shape=(1, 8, 8), numel=64)\n" in text
    assert write_scripts(ResNet(width=4), COLOUR)["model.py"].replace("num_classes=7", "") != text


@pytest.mark.parametrize("weights", ["best", "last"])
def test_which_weights(weights: str, tmp_path: Path) -> None:
    run, _ = make_run(tmp_path / "run", *FAMILIES["resnet"])
    loaded = load_run(run.path, weights, None)  # type: ignore[arg-type]
    write_folder(loaded, tmp_path / "out")
    found, expected = load_file(tmp_path / "out" / "model.safetensors"), load_file(run.path / f"{weights}.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    other = load_file(run.last if weights == "best" else run.best)
    assert any(not torch.equal(found[name], other[name]) for name in other)


def test_an_export_draws_no_random_numbers(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path / "run", *FAMILIES["resnet"])
    loaded = load_run(run.path, "best", None)
    before = torch.get_rng_state()
    write_folder(loaded, tmp_path / "out")
    assert torch.equal(torch.get_rng_state(), before)
