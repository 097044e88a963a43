"""Every example of docs/extending.md is saved under its name and run as a script."""

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calls import Call, call
from tests.docs.pages import ROOT, blocks
from tests.engine.processes import finish, spawn
from uiat import attacks, data, methods, models, recipes
from uiat.runs.folder import RunFolder
from uiat.serialize import from_json, to_json

EXAMPLES = {
    block.text.splitlines()[0].removeprefix("# "): block.text
    for block in blocks(ROOT / "docs" / "extending.md")
    if block.language == "python"
}
REGISTRIES: list[dict[str, Any]] = [
    attacks.ATTACKS,
    methods.METHODS,
    methods.DESCRIPTIONS,
    models.MODELS,
    models.DESCRIPTIONS,
    data.SOURCES,
    recipes.RECIPES,
]
BEFORE = [dict(registry) for registry in REGISTRIES]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Save all examples in one folder, as they import each other, and put the registries back afterwards."""
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget()


def forget() -> None:
    """Be as a process that has imported no example."""
    for registry, content in zip(REGISTRIES, BEFORE, strict=True):
        registry.clear()
        registry.update(content)
    for name in EXAMPLES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_there_is_one_for_each_kind_of_part() -> None:
    assert list(EXAMPLES) == ["mi_fgsm.py", "mixed_target.py", "mixed.py", "small_cnn.py", "stripes.py"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_fits_on_a_page(name: str) -> None:
    assert len(EXAMPLES[name].splitlines()) <= 70


def test_the_attack_raises_the_loss(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("mi_fgsm.py", run_name="__main__")
    before, after = (float(part.split()[-1]) for part in capsys.readouterr().out.split(","))
    assert after > before
    assert "mi-fgsm" in attacks.ATTACKS


def test_the_target_gives_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path("mixed_target.py", run_name="__main__")
    out = capsys.readouterr().out
    assert "'ce'" in out
    assert "'kl'" in out


@pytest.mark.parametrize(
    ("script", "run", "kind"),
    [
        ("mixed.py", "runs/mixed", {"method": "Mixed"}),
        ("small_cnn.py", "runs/cnn", {"model": "SmallCNN"}),
        ("stripes.py", "runs/stripes", {}),
    ],
)
def test_the_run_is_trained_and_evaluated(script: str, run: str, kind: dict[str, str]) -> None:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    assert ended.value.code == 0
    folder = RunFolder(run)
    saved = json.loads(folder.config.read_text(encoding="utf-8"))
    assert saved.pop("imports") == [{"name": script, "folder": str(Path.cwd())}]
    assert {part: saved[part]["kind"] for part in kind} == kind
    assert to_json(from_json(saved)) == saved  # so a resume finds its parts, too
    evaluations = json.loads(folder.result.read_text(encoding="utf-8"))["evaluations"]
    assert [evaluation["attack"] for evaluation in evaluations] == ["natural", "pgd-20"]


def test_a_script_passes_on_how_its_command_ended() -> None:
    Path("runs").write_text("a file where a folder should be")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("mixed.py", run_name="__main__")
    assert ended.value.code == 2


def test_the_commands_work_for_the_example(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command of the page: a run's own import is said where it is used, and only there."""
    (block,) = [b for b in blocks(ROOT / "docs" / "extending.md") if b.language == "bash"]
    tiny = ["--validate.steps", "2", "--model.width", "4"]
    said = {}
    for program, *words in block.commands():
        assert program == "uiat"
        small = tiny if "digits-resnet8-mixed" in words else []
        if "--processes" in words:  # its processes are new ones: nothing but the run tells them what to import
            found = Call(*finish(spawn("uiat", *words, cwd=folder)))
        else:
            found = call(capsys, *words, *small)
        forget()
        assert found.code == 0, found.err
        said[words[0], "--resume" in words] = (found.out, found.err)
    notice = f"importing mixed.py from {folder}, as runs/mine/config.json says\n"
    assert [key for key, (_, err) in said.items() if notice in err] == [("train", True), ("bench", False)]
    assert all(err.count(notice) == 1 for _, err in said.values() if notice in err)
    assert "runs/mine: passes were counted" in said["bench", False][0]
    assert "UIAT's loss, p half clean" in said["list", False][0]
    assert json.loads((folder / "handover" / "card.json").read_text())["method"]["kind"] == "Mixed"


def test_the_registries_are_as_they_were() -> None:
    assert "mixed" not in methods.METHODS
    assert "stripes" not in data.SOURCES
