"""Commands and code blocks of the README and of the pages it links to, run at a smaller size."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from tests.support.documents import README, blocks, known_flags
from tests.support.processes import ROOT
from tests.unit.test_attacks import fb
from uiat import METHODS
from uiat.cli import main
from uiat.cli.train_options import first_config, name_recipe, parse_recipe
from uiat.config import AnyConfig
from uiat.data import SOURCES
from uiat.models import MODELS

TINY = ["--train.epochs", "1", "--data.subset", "200", "--validate.steps", "2"]
RUN = [README, *(ROOT / "docs" / f"{name}.md" for name in ("quickstart", "plugin", "cli", "runs", "data"))]
CHECKED = [*RUN, *(ROOT / "docs" / f"{name}.md" for name in ("install", "gpu", "evaluation", "performance", "sharing"))]
"""Pages whose commands have only known flags."""
MADE = {
    "README.md": {"mine", "sat", "uiat"},
    "quickstart.md": {"first"},
    "plugin.md": {"trades"},
    "cli.md": {"digits-resnet8-uiat-s0", "b", "b2", "c", "d", "e-s0", "e-s1"},
    "runs.md": {"logged", "sat", "uiat"},
    "data.md": {"mine"},
}
"""The runs that the blocks of each page create."""
DOWNLOADED = ("cifar10", "cifar100", "svhn", "fashion-mnist")


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_blocks_run_in_their_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one folder, from top to bottom."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("uiat.bench.cost_estimate.bare_seconds", lambda *_, **__: 0.001)  # plans for a GPU take seconds
    for block in blocks(page):
        if any(name in block.text for name in ("photos", "my_net.py", "my_arrays", "my_data")):
            continue  # in tests/docs/test_data_page.py, unmodified
        if block.language == "python" and not block.text.startswith("# log_"):
            exec(compile(block.text, page.name, "exec"), yours())
        elif block.language == "bash":
            for command in block.commands():
                run(command)
    runs = {path.name for path in Path("runs").iterdir()} if Path("runs").is_dir() else set()
    assert runs >= MADE[page.name]


def test_the_code_of_the_page_about_evaluation() -> None:
    """The variables of the reader (network, images) are defined first."""
    names = {**yours(), "foolbox": fb}
    for block in blocks(ROOT / "docs" / "evaluation.md"):
        if block.language == "python":
            exec(compile(block.text, "evaluation.md", "exec"), names)


def test_the_logger_of_the_page_about_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten lines for Weights & Biases, with a stub for its package."""
    (block,) = [b for b in blocks(ROOT / "docs" / "runs.md") if b.text.startswith("# log_wandb.py")]
    assert len([line for line in block.text.splitlines() if line.strip()]) <= 12
    logged: list[tuple[dict[str, object], int]] = []
    stand_in = ModuleType("wandb")
    one = SimpleNamespace(log=lambda numbers, step: logged.append((numbers, step)))
    stand_in.init = lambda **_: one  # type: ignore[attr-defined]
    stand_in.Image = lambda x: tuple(x.shape)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("log_wandb.py").write_text(block.text, encoding="utf-8")
    flags = ["--log", "log_wandb:make", "--out", "run", "--train.log-every", "2"]
    assert main(["train", "digits-resnet8-natural", *TINY, "--model.width", "4", *flags]) == 0
    last, step = logged[-1]
    assert step == logged[-1][1] > 0
    assert "epoch/val_robust" in last
    assert last["inverse, natural, adversarial"] == [(1, 8, 8)] * 24
    assert any("step/lr" in numbers for numbers, _ in logged)


def yours() -> dict[str, object]:
    """Return the names that the README does not define."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(900, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = [(torch.arange(8), torch.rand(8, 3, 32, 32), torch.arange(8))]
    images = {"x": loader[0][1], "y": loader[0][2], "dataset": list(zip(*loader[0][1:], strict=True))}
    return {"model": model, "optimizer": optimizer, "loader": loader, "device": "cpu", "epochs": 2, **images}


def run(command: list[str]) -> None:
    """Run one command: a `make` target exists, and `uiat` succeeds."""
    program, *args = command
    if program == "make":
        assert args[0] in make_targets()
        return
    if command == ["source", ".venv/bin/activate"]:
        return
    assert program == "uiat", f"no rule for the command {command}"
    if args[0] == "train" and "--resume" not in args and not {"--help", "--help-all"} & set(args):
        config = parsed(args[1:])
        if config.data.name in DOWNLOADED:
            return
        width = ["--model.width", "4"] if "--model" not in args else []
        args = [*args, *TINY, *width]
    if "--processes" in args:  # in tests/distributed/test_runs.py
        at = args.index("--processes")
        args = args[:at] + args[at + 2 :]
    if args[0] == "report":
        args = [*args, "--n", "20", "--examples", "4", "--attack", "pgd-2"]
    assert main(args) == 0, command


def parsed(args: list[str]) -> AnyConfig:
    """Return the configuration of the arguments of `uiat train`."""
    _, config, rest = first_config(*name_recipe(args))
    return parse_recipe(config, rest)[0]


def make_targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_it_opens_with_the_two_commands() -> None:
    first = blocks(README)[0]
    assert [command[:2] for command in first.commands()] == [["make", "demo"], ["make", "test"]]


def test_overrides_do_what_the_page_says() -> None:
    line = next(w for b in blocks(ROOT / "docs" / "cli.md") for w in b.commands() if "cifar10-resnet18-uiat" in w)
    config = parsed(line[2:])
    method = config.method
    assert method == type(method)(lam=4.0, inverse=type(method.inverse)(beta=0.0))  # type: ignore[call-arg,misc]
    assert config.seed == 1


@pytest.mark.parametrize("name", [*METHODS, *MODELS, *SOURCES])
def test_every_registered_part_is_in_a_table(name: str) -> None:
    pages = [(ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("methods", "data")]
    rows = [line for page in pages for line in page.splitlines() if line.startswith("| `")]
    assert any(f"`{name}`" in row.split(" | ")[0] for row in rows), f"{name} is neither in methods.md nor in data.md"


@pytest.mark.parametrize("page", CHECKED, ids=lambda page: page.name)
def test_commands_have_known_flags(page: Path) -> None:
    known = known_flags()
    commands = [command for block in blocks(page) if block.language == "bash" for command in block.commands()]
    for program, *args in commands:
        flags = {arg for arg in args if arg.startswith("--") and program == "uiat"}
        assert flags <= known, f"no such flags: {sorted(flags - known)}"


def test_contributing_shows_commands_that_exist() -> None:
    commands = [w for b in blocks(ROOT / "CONTRIBUTING.md") if b.language == "bash" for w in b.commands()]
    assert commands
    for program, *args in commands:
        if program == "make":
            assert args[0] in make_targets()
        elif program == "uiat":
            assert parsed(args[1:]).train.epochs == 4
        else:
            assert program == "cmp"


def test_the_readme_fits_its_first_screens() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 145
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.png"))
    assert {path.name for path in pictures} == {"friend-to-enemy.png", "phone.png", "slider.png"}
    assert all(path.stat().st_size < 300_000 for path in pictures)
