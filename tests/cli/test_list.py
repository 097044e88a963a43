"""`uiat list`: every registered name with its description, and recipes by their settings."""

import re
from dataclasses import dataclass

import pytest

from tests.support.calls import call, refused
from uiat import data, recipes
from uiat.attacks import ATTACKS, PGD
from uiat.evaluation import suite
from uiat.methods import METHODS, SAT
from uiat.models import MODELS, ResNet

GROUPS = {
    "methods": list(METHODS),
    "models": list(MODELS),
    "data": list(data.SOURCES),
    "attacks": list(suite.DESCRIPTIONS),
    "training-attacks": list(ATTACKS),
    "recipes": list(recipes.RECIPES),
}


@pytest.mark.parametrize("kind", [kind for kind in GROUPS if kind != "recipes"])
def test_a_group(kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # one line each, however narrow the screen
    found = call(capsys, "list", kind)
    assert found.code == 0
    title, *lines = found.out.splitlines()
    assert title == kind
    width = 2 + max(map(len, GROUPS[kind]))
    assert [line[:width].strip() for line in lines] == GROUPS[kind]
    assert all(line[width:].strip() for line in lines)


def test_all_groups(capsys: pytest.CaptureFixture[str]) -> None:
    lines = call(capsys, "list").out.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == list(GROUPS)
    assert max(map(len, lines)) <= 100


def read_recipes(text: str) -> set[str]:
    """Return the names of the recipes in the list."""
    found = set()
    for entry in re.split(r"\n {4}(?=\S)", text)[1:]:
        places, _, rest = entry.partition("\n      ")
        methods = " ".join(rest.partition("\n\n")[0].split()).partition("METHOD: ")[2].split(", ")
        for place in places.split(", "):
            found |= {place.replace("METHOD", method) for method in methods}
    return found


def test_the_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    text = call(capsys, "list", "recipes").out
    assert read_recipes(text) == set(recipes.RECIPES)
    assert len(text.splitlines()) < 60
    for name in recipes.RECIPES:
        assert recipes.describe_recipe(name) in " ".join(text.split())
    paper = text.partition("the paper's own settings")[2].partition("\n\n")[0]
    assert "cifar10-wrn-34-10-METHOD" in paper
    assert "resnet8" not in paper
    assert "cifar10-resnet18-uiat-plus" in text.partition("  plus: ")[2].partition("\n\n")[0]


@dataclass(frozen=True)
class Gentle(SAT):
    """Adversarial training with two short steps.

    More about it.
    """


@dataclass(frozen=True)
class Undocumented(SAT):
    pass


@pytest.mark.parametrize(
    ("kind", "registry", "part", "line"),
    [
        ("methods", METHODS, Gentle(), "Adversarial training with two short steps."),
        ("methods", METHODS, Undocumented(), "Undocumented"),
        ("models", MODELS, ResNet(width=8), (ResNet.__doc__ or "").splitlines()[0]),
        ("training-attacks", ATTACKS, PGD(), (PGD.__doc__ or "").splitlines()[0]),
    ],
)
def test_a_custom_part_needs_no_description(
    kind: str,
    registry: dict[str, object],
    part: object,
    line: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry, "custom", part)
    name, shown = call(capsys, "list", kind).out.splitlines()[-1].split(maxsplit=1)
    assert (name, shown) == ("custom", line)
    assert call(capsys, "list", kind, "--names").out.splitlines()[-1] == "custom"


def test_names_of_attacks_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    names = call(capsys, "list", "attacks", "--names").out.splitlines()
    assert len(names) == len(suite.DESCRIPTIONS)
    for name in names:
        assert suite.plan_attack(name, PGD(eps=8 / 255), num_classes=10, seed=0).name == name


def test_a_registered_function_describes_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mine(model: object, x: object, y: object) -> object:
        """Leave x unchanged."""
        return x

    monkeypatch.setitem(ATTACKS, "mine", mine)
    assert call(capsys, "list", "attacks").out.splitlines()[-1].split(maxsplit=1) == ["mine", "Leave x unchanged."]


def test_recipes_that_an_import_adds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def mine() -> None:
        """A custom recipe."""

    monkeypatch.setitem(recipes.RECIPES, "digits-resnet8-mine", mine)
    monkeypatch.setitem(recipes.RECIPES, "whatever", mine)
    text = call(capsys, "list", "recipes").out
    assert read_recipes(text) == set(recipes.RECIPES)
    assert text.endswith("\n  others\n    digits-resnet8-mine, whatever\n      A custom recipe.\n")


def test_names_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "list", "recipes", "--names").out.splitlines() == GROUPS["recipes"]
    assert call(capsys, "list", "--names", "models", "data").out.splitlines() == GROUPS["models"] + GROUPS["data"]


def test_an_unknown_group(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "list", "methds")
    assert "'methds'" in message
    assert "'methods'" in message
