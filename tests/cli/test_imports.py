"""Custom methods: named with `--import`, recorded in the run, installed as a package, or unknown."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.calls import call, missing_facts, refused
from tests.support.runs import tiny
from uiat import methods, recipes
from uiat.config import Config, Validation
from uiat.config_json import UnknownMethod, encode, from_json, to_json
from uiat.errors import UserError
from uiat.methods import METHODS
from uiat.runs.run_folder import RunFolder
from uiat.types import DataSpec

OWN = """
from dataclasses import dataclass, replace
from functools import partial
from uiat.attacks import PGD
from uiat.methods import METHODS, DESCRIPTIONS, SAT, MethodConfig
from uiat.recipes import RECIPES, small

@dataclass(frozen=True)
class Gentle(MethodConfig):
    attack: PGD = PGD(steps=2, eps=0.125, norm="l2")
    def build(self, data, *, seed=0, helper=None):
        return SAT(self.attack).build(data, seed=seed, helper=helper)

METHODS["gentle"] = Gentle()
DESCRIPTIONS["gentle"] = "two short steps"
RECIPES["digits-resnet8-gentle"] = partial(small.digits, "gentle")
"""
TINY = ["--train.epochs", "1", "--data.subset", "100", "--validate.steps", "1", "--model.width", "2", "--out", "run"]
TRAIN = ["train", "digits-resnet8-gentle", *TINY]


@pytest.fixture(autouse=True)
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Change to an empty folder; return a function that undoes all imports, as in a new process."""
    registries: list[dict[str, Any]] = [methods.METHODS, methods.DESCRIPTIONS, recipes.RECIPES]
    before, modules, places = [dict(registry) for registry in registries], set(sys.modules), list(sys.path)

    def forget() -> None:
        for registry, content in zip(registries, before, strict=True):
            registry.clear()
            registry.update(content)
        for name in set(sys.modules) - modules:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
                del sys.modules[name]
        sys.path[:] = places

    monkeypatch.chdir(tmp_path)
    Path("gentle.py").write_text(OWN)
    yield forget
    forget()


def test_a_file_or_a_module_is_known_before_anything_is_parsed(
    tmp_path: Path, forget: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").mkdir()
    shutil.copy("gentle.py", tmp_path / "own" / "parts.py")
    names = ("gentle.py", "gentle", str(tmp_path / "gentle.py"), "own/parts.py", "own.parts")
    for args in [["--import", name] for name in names] + [["--import=gentle.py"]]:
        assert "gentle" not in METHODS
        assert "two short steps" in call(capsys, "list", "methods", *args).out
        assert "two short steps" in call(capsys, *args, "list", "methods").out
        forget()


def test_a_run_without_imports_is_unchanged(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", tiny("sat"))
    assert json.loads(run.config.read_text()) == {**to_json(tiny("sat")), "run_id": run.read_id()}
    assert run.read_imports() == ()


def test_a_run_is_measured_without_and_trained_with_its_import(
    tmp_path: Path, forget: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = call(capsys, *TRAIN, "--import", "gentle.py")
    assert found.code == 0, found.err
    assert "importing" not in found.err
    saved = json.loads(Path("run/config.json").read_text())
    assert saved["imports"] == [{"name": "gentle.py", "folder": str(tmp_path)}]
    assert "imports" not in json.loads(Path("run/result.json").read_text())["config"]
    forget()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run = str(tmp_path / "run")
    for args in (
        ["evaluate", run, "--n", "5", "--attacks", "fgsm"],
        ["curves", run, "--n", "6", "--grid", "0", "0.1", "--attack", "fgsm"],
        ["inverse", run, "--n", "5", "--passes", "1", "--z-images", "20"],
        ["export", run],
    ):
        found = call(capsys, *args)
        assert found.code == 0, found.err
        assert "importing" not in found.err
    assert "gentle" not in METHODS
    (evaluation,) = json.loads((tmp_path / "run/result.json").read_text())["evaluations"]
    assert (evaluation["eps"], evaluation["norm"]) == (saved["method"]["attack"]["eps"], "l2")
    assert json.loads((tmp_path / "run/export/card.json").read_text())["method"] == saved["method"]
    assert "trained with Gentle" in (tmp_path / "run/export/README.md").read_text()
    message = refused(capsys, "train", "--resume", run)
    assert f"'gentle.py' in '{tmp_path}'" in message
    assert "--import gentle.py" in message
    assert "gentle" not in METHODS
    assert call(capsys, "train", "--resume", run, "--import", "../gentle.py").code == 0


def test_a_run_whose_file_moved_takes_another(
    tmp_path: Path, forget: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, *TRAIN, "--import", "gentle.py").code == 0
    forget()
    Path("gentle.py").rename("kind.py")
    assert call(capsys, "train", "--resume", "run", "--import", "kind.py").code == 0
    assert [each.name for each in RunFolder("run").read_imports()] == ["kind.py"]
    args = ("--import", "kind.py", "--on-nonfinite", "skip")
    assert call(capsys, "train", "--resume", "run", *args).code == 0
    assert [each.name for each in RunFolder("run").read_imports()] == ["kind.py"]


def test_a_run_that_names_no_import(forget: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, *TRAIN, "--import", "gentle.py").code == 0
    saved = json.loads(Path("run/config.json").read_text())
    del saved["imports"]
    Path("run/config.json").write_text(json.dumps(saved))
    forget()
    for args in (["train", "--resume", "run"], ["bench", "--methods", "run"]):
        assert missing_facts(refused(capsys, *args), "Gentle run module") == []


@pytest.mark.parametrize("imports", [3, ["gentle.py"], [{"name": "a"}], [{"name": 1, "folder": 2}], {"name": "a"}])
def test_invalid_imports(imports: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder.create(tmp_path / "run", tiny("sat"))
    run.config.write_text(json.dumps({**to_json(tiny("sat")), "imports": imports}))
    assert missing_facts(refused(capsys, "train", "--resume", "run"), "imports list") == []


@pytest.mark.parametrize(
    ("args", "text", "facts"),
    [
        (["--import"], "", "--import"),
        (["--import", "nowhere.py"], "", "'--import nowhere.py' path"),
        (["--import", "nowhere"], "", "'--import nowhere' 'No module'"),
        (["--import", "mine.py"], "1 / 0", "'--import mine.py' ZeroDivisionError"),
        (["--import", "mine.py"], "x = (", "'--import mine.py' SyntaxError"),
        (["--import", "mine.py"], "raise SystemExit(0)", "__name__ __main__"),
        (["--import", "json.py"], "", "json.py rename"),
    ],
)
def test_an_import_that_fails(args: list[str], text: str, facts: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(text)
    Path("json.py").write_text(text)
    assert missing_facts(refused(capsys, "list", *args), facts) == []


def test_an_unknown_method_is_kept_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    saved = to_json(tiny("uiat"))
    saved["method"] |= {"kind": "Mine", "attack": {**saved["method"]["attack"], "kind": "Climb", "eps": 0.5}}
    config = from_json(saved)
    method: Any = config.method
    assert isinstance(config, Config)
    assert isinstance(method, UnknownMethod)
    assert to_json(config) == saved
    assert method.inverse == tiny("uiat").method.inverse
    assert method.attack is not None
    assert (method.attack.eps, encode(method.attack)["kind"]) == (0.5, "Climb")
    assert not hasattr(method, "nothing")
    assert Validation().attack(method).eps == 0.5
    with pytest.raises(UserError, match="'Mine' is not known here"):
        method.build(DataSpec(10, 10, (1, 8, 8)))
    with pytest.raises(UserError, match="unknown kind of configuration 'Climb'"):
        from_json({**saved, "model": {"kind": "Climb"}})


def test_bench_takes_a_method_by_name_and_from_a_run(
    tmp_path: Path, forget: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, *TRAIN, "--import", "gentle.py", "--method.attack.steps", "3").code == 0
    forget()
    shared = ["bench", "--model", "resnet8", "--model.width", "2", "--batch-size", "4", "--size", "8", "--rounds", "1"]
    shared += ["--no-references", "--no-memory", "--json", "b.json", "--methods"]
    assert "--import gentle.py" in refused(capsys, *shared, "run")
    assert "gentle" not in METHODS
    for args, name, steps in ((["run"], "run", 3), (["gentle"], "gentle", 2)):
        found = call(capsys, *shared, *args, "--import", "gentle")
        assert found.code == 0, found.err
        assert name in found.out
        (line,) = json.loads(Path("b.json").read_text())["lines"]
        assert line["counts"] == [{"forward": steps + 1, "input_backward": steps, "weight_backward": 1}]
        assert line["over_bare"] > 0
        forget()


def install(folder: Path, package: str, module: str) -> None:
    """Write what an installer writes: a folder with the package's name, version and entry points."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[uiat.plugins]\n{module} = {module}\n")


def test_an_installed_package_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    install(site, "gentle-methods", "gentle_methods")
    (site / "gentle_methods.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(site))
    found = call(capsys, *TRAIN)
    assert found.code == 0, found.err
    assert "imports" not in json.loads(Path("run/config.json").read_text())
    assert call(capsys, "train", "--resume", "run").code == 0


def test_an_installed_package_that_fails_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "broken", "is_broken")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = call(capsys, "list", "models")
    assert found.code == 0
    assert "the plug-in 'is_broken' of broken is skipped, it cannot be imported (ModuleNotFoundError" in found.err
    (tmp_path / "site" / "is_broken.py").write_text("raise SystemExit(3)\n")
    assert "it cannot be imported (SystemExit: 3)" in call(capsys, "list", "models").err
