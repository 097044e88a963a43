"""A package that is not installed is one sentence; a module that nobody could install stays an error."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.calls import call, stopped
from tests.support.processes import ROOT, finish, spawn
from uiat.cli import COMMANDS, PACKAGE_NAMES

BLOCK = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def without(names: set[str], tmp_path: Path, *words: str) -> tuple[int, str, str]:
    """Run a command in a process that cannot import some packages."""
    (tmp_path / "sitecustomize.py").write_text(BLOCK.format(names=names))
    return finish(spawn("uiat", *words, PYTHONPATH=f"{tmp_path}:{ROOT / 'src'}"))


@pytest.mark.parametrize(
    ("words", "names", "package"),
    [
        (["train", "--help"], {"tyro"}, "tyro"),
        (["list"], set(PACKAGE_NAMES), "(rich|scikit-learn|pillow|tyro|scipy)"),
        (["train", "digits-resnet8-sat", "--dry-run"], {"sklearn"}, "scikit-learn"),
    ],
)
def test_one_sentence(words: list[str], names: set[str], package: str, tmp_path: Path) -> None:
    code, out, err = without(names, tmp_path, *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert re.match(f"uiat: `uiat {words[0]}` needs {package}, .*pip install {package}", err)


def test_what_needs_none_of_them_works(tmp_path: Path) -> None:
    code, out, err = without(set(PACKAGE_NAMES), tmp_path, "--help")
    assert (code, err) == (0, "")
    assert all(name in out for name in COMMANDS)


def test_others_stay_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("import tyro_of_my_own\n")
    assert "cannot import 'mine' for --import mine.py (No module" in stopped(capsys, "list", "--import", "mine.py")

    def fail(*args: object) -> int:
        raise ModuleNotFoundError("No module named 'rich_of_my_own'", name="rich_of_my_own")

    monkeypatch.setattr("uiat.cli.listing.main", fail)
    with pytest.raises(ModuleNotFoundError, match="rich_of_my_own"):
        call(capsys, "list")


def test_every_package_that_is_declared_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"].get("all", ())]
    names = {match[0] for line in declared if (match := re.match(r"[\w-]+", line)) and match[0] != "uiat"}
    assert names - {"torch", "numpy", "safetensors"} <= set(PACKAGE_NAMES.values())
    assert all(name in sys.stdlib_module_names or name.isidentifier() for name in PACKAGE_NAMES)
