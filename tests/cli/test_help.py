"""The short help: one screen, consistent with the full help, from the same docstrings."""

import re
from dataclasses import replace

import pytest

from tests.support.calls import call
from uiat import recipes
from uiat.cli.flags import flags_of
from uiat.cli.train_options import BRIEF, Command, NewRun
from uiat.models import MODELS
from uiat.reproduce.experiments import EXPERIMENTS

COMMANDS = ("train", "evaluate", "curves", "inverse", "bench")


def named(text: str) -> set[str]:
    """Return the flags that a help lists: each at the beginning of a line, in a box or not."""
    lines = (line[1:].strip("│| ") for line in text.splitlines() if line[:1] in ("│", "|", " "))
    return {flag for line in lines if line.startswith("-") for flag in re.findall(r"(?:^|, )(--\w[\w.-]*)", line)}


def plain(text: str) -> str:
    return " ".join(re.sub("[│|]", " ", text).split())


@pytest.fixture(autouse=True)
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("command", COMMANDS)
def test_it_fits_a_screen_and_the_rest_is_one_flag_away(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    short, full = call(capsys, command, "--help"), call(capsys, command, "--help-all")
    assert (short.code, full.code) == (0, 0)
    lines = short.out.splitlines()
    assert len(lines) <= 45 < len(full.out.splitlines())
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"usage: uiat {command}")
    assert [line for line in lines if line.startswith(f"  uiat {command}")] == lines[-2:]
    own = named(short.out) - {"--help-all"}
    assert len(own) >= 10
    elsewhere = (
        named(call(capsys, "train", "--resume", "run", "--help").out) | {"--data"} if command == "train" else set()
    )
    assert own - elsewhere <= named(full.out)
    assert call(capsys, command, "-h").out == short.out


@pytest.mark.parametrize(
    "command",
    [
        "train --resume RUN",
        "reproduce",
        "compare",
        "report",
        "watch",
        "export",
        "push",
        "data info",
        "data pack",
        "data fetch",
    ],
)
def test_commands_with_few_flags_have_the_same_style(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    short, full = call(capsys, *command.split(), "-h"), call(capsys, *command.split(), "--help-all")
    assert (short.code, full.code) == (0, 0)
    assert call(capsys, *command.split(), "--help").out == short.out
    lines = short.out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith(f"usage: uiat {command} ")
    assert [line for line in lines if line.startswith(f"  uiat {command.removesuffix(' RUN')} ")] == lines[-2:]
    assert named(short.out) - {"--help-all"} <= named(full.out)


@pytest.mark.parametrize("command", ["data", "list", "env", "completion"])
def test_commands_without_flags_of_their_own(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, command, "--help")
    assert found.code == 0
    assert found.out.startswith(f"usage: uiat {command} ")
    assert max(map(len, found.out.splitlines())) <= 100
    assert call(capsys, command, "-h").out == found.out
    assert command != "data" or call(capsys, command).out == found.out


def test_the_help_of_reproduce_lists_every_table_and_figure(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--help", "--help-all"):
        listed = plain(call(capsys, "reproduce", flag).out).split("Tables and figures: ")[1].split(".")[0].split(", ")
        assert listed == list(EXPERIMENTS)


@pytest.mark.parametrize("recipe", ["digits-resnet8-uiat", "cifar10-wrn-34-10-mart", "digits-resnet8-natural"])
def test_its_texts_are_those_of_the_full_help(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    short = plain(call(capsys, "train", recipe, "--help").out)
    full = plain(call(capsys, "train", recipe, "--help-all").out)
    full += plain(call(capsys, "train", "--resume", "run", "--help").out)
    flags = {flag.name: flag for flag in flags_of(Command(recipes.get_recipe(recipe), NewRun()))}
    shown = [flags[name] for name in BRIEF if name in flags]
    assert len(shown) >= 10
    for flag in shown:
        assert flag.text
        assert flag.text in short
        assert flag.text in full
    epochs = recipes.get_recipe(recipe).train.epochs
    assert f"--train.epochs INT Passes over the training set. (default: {epochs})" in short


def test_every_flag_of_the_short_help_is_of_the_default_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    text = call(capsys, "train", "--help").out
    assert [name for name in BRIEF if name != "--data.name" and name not in named(text)] == []


@pytest.mark.parametrize("recipe", ["digits-resnet8-uiat-oneoff", "cifar10-wrn-28-10-hat", "digits-resnet8-gradalign"])
@pytest.mark.parametrize("model", ["resnet8", "wrn-10-1"])
def test_the_flags_that_are_read_are_those_of_the_parser(
    recipe: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(recipes.get_recipe(recipe), model=MODELS[model])
    ours = {name for flag in flags_of(Command(config, NewRun())) for name in flag.names}
    theirs = named(call(capsys, "train", recipe, "--model", model, "--help-all").out)
    assert ours == theirs - {"--help"}


def test_a_dry_help_makes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "train", "digits-resnet8-sat", "--help")
    assert found.err == ""
    assert "--method.lam" not in found.out  # SAT has none


def test_a_narrow_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = call(capsys, "train", "--help").out
    assert max(len(line) for line in text.splitlines() if not line.startswith("  uiat")) <= 60
