"""Every example of docs/extending.md, saved under its name and run as a script."""

import json
import runpy
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.calls import Call, call
from tests.support.documents import blocks
from tests.support.processes import ROOT, finish, spawn
from uiat import attacks, data, methods, models, recipes
from uiat.cli import main
from uiat.config_json import from_json, to_json
from uiat.recipes.variants import at_radius
from uiat.reproduce.cell import Cell
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.scales import SCALES, SMOKE_EPS
from uiat.reproduce.table import Entry, Percent, Table
from uiat.runs.run_folder import RunFolder

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
    """Save all examples in one folder, since they import each other; restore the registries afterwards."""
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget()


def forget() -> None:
    """Restore the registries, and forget the imported examples."""
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


def test_the_attack_is_one_for_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    """Its accuracy equals that of a plain loop at the ε of the evaluation, to which its step size is scaled."""
    images = data.load_splits(data.DataConfig(name="digits")).test.take(torch.arange(40))
    x, y, eps = images.x.float() / 255, images.y, 0.1
    torch.manual_seed(0)
    network = models.ResNet(blocks=(1, 1, 1), width=4).build(images.spec).eval()
    torch.save(network.state_dict(), "weights.pt")
    args = ("evaluate", "weights.pt", "--model", "resnet8", "--model.width", "4", "--data", "digits", "--n", "40")
    flags = ("--exact", "--eps", str(eps), "--json", "out.json")
    found = call(capsys, *args, *flags, "--attacks", "natural", "mi-fgsm", "--import", "mi_fgsm.py")
    assert found.code == 0, found.err
    attack = replace(attacks.ATTACKS["mi-fgsm"], eps=eps, step=eps / 4)  # type: ignore[type-var]
    correct = (network(x).argmax(dim=1) == y) & (network(attack(network, x, y)).argmax(dim=1) == y)
    entry = json.loads(Path("out.json").read_text())["attacks"]["mi-fgsm"]
    assert entry["accuracy"] == float(correct.double().mean())
    assert entry["largest_distance"] == pytest.approx(eps, rel=1e-4)
    listed = call(capsys, "list", "attacks", "--import", "mi_fgsm.py")
    assert "Momentum iterative FGSM" in listed.out
    forget()
    found = call(capsys, *args, *flags, "--attacks", "mi-fgsm")
    assert found.code == 2
    assert "mi-fgsm" in found.err


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
    assert saved.pop("run_id")
    assert {part: saved[part]["kind"] for part in kind} == kind
    assert to_json(from_json(saved)) == saved  # so a resume finds its parts, too
    evaluations = json.loads(folder.result.read_text(encoding="utf-8"))["evaluations"]
    assert [evaluation["attack"] for evaluation in evaluations] == ["natural", "pgd-20"]


def test_a_script_returns_the_exit_code_of_its_command() -> None:
    Path("runs").write_text("a file where a folder should be")
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("mixed.py", run_name="__main__")
    assert ended.value.code == 2


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_commands_work_for_the_example(processes: bool, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command of the page; those that require the method name its file."""
    (block,) = [b for b in blocks(ROOT / "docs" / "extending.md") if b.language == "bash"]
    tiny = ["--validate.steps", "2", "--model.width", "4"]
    output = {}
    for program, *args in block.commands():
        assert program == "uiat"
        small = tiny if "digits-resnet8-mixed" in args else []
        if "--processes" in args and processes:  # new processes, which import the file themselves
            found = Call(*finish(spawn("uiat", *args, cwd=folder)))
        else:
            if "--processes" in args:
                at = args.index("--processes")
                args = args[:at] + args[at + 2 :]
            found = call(capsys, *args, *small)
        forget()
        assert found.code == 0, found.err
        output[args[0]] = found.out
    assert all(name in output["bench"] for name in ("runs/mine", "mixed"))
    assert "UIAT's loss, p half clean" in output["list"]
    made = json.loads((folder / "runs/mine/inverse/inverse.json").read_text())
    trained = RunFolder("runs/mine").read_config().method
    assert trained.inverse is not None
    assert made["universal"]["eps"] == trained.inverse.eps
    assert len(json.loads((folder / "runs/mine/curves/curves.json").read_text())["grid"]) == 3
    entries = json.loads(RunFolder("runs/mine").result.read_text(encoding="utf-8"))["evaluations"]
    (entry,) = [entry for entry in entries if entry["attack"] == "mi-fgsm"]
    assert 0 < entry["largest_distance"] <= entry["eps"] + 1e-6
    assert "MIFGSM" in entry["definition"]
    assert json.loads((folder / "handover" / "card.json").read_text())["method"]["kind"] == "Mixed"


def test_the_registries_are_restored() -> None:
    assert "mixed" not in methods.METHODS
    assert "stripes" not in data.SOURCES


def test_a_custom_table_is_reproduced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its method has a name, a cost and a plan, like methods of the package."""
    import_module("mixed")
    scale = SCALES["smoke"]
    cell = Cell(replace(scale.config("uiat"), method=at_radius(methods.get_method("mixed"), SMOKE_EPS)))
    entry = Entry("Mixed", "digits", "Natural", cell, Percent(scale.attacked("Natural")))
    monkeypatch.setitem(EXPERIMENTS, "mine", lambda scale: Table("mine", "A custom method", scale, (entry,)))
    for flags in (["--plan"], []):
        assert main(["reproduce", "mine", "--only", "mixed", "--jobs", "0", "--out", "out", *flags]) == 0
    (run,) = (folder / "out" / "runs").glob("digits-mixed-s0-*")
    assert RunFolder(run).is_finished
    assert main(["reproduce", "table1", "--only", "mixed", "--out", "out"]) == 2


def test_a_method_that_is_no_method_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plain.py").write_text(EXAMPLES["mixed.py"].replace("class Mixed(MethodConfig)", "class Mixed"))
    found = call(capsys, "train", "digits-resnet8-mixed", "--import", "plain.py")
    sys.modules.pop("plain")
    assert found.code == 2
    assert "derive its dataclass from uiat.methods.MethodConfig" in found.err
