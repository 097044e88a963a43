"""`uiat list` shows everything there is, a line each."""

import pytest

from tests.support.calls import call, refused
from uiat import data, recipes
from uiat.attacks import ATTACKS
from uiat.evaluation import suite
from uiat.methods import METHODS
from uiat.models import MODELS

GROUPS = {
    "methods": list(METHODS),
    "models": list(MODELS),
    "data": list(data.SOURCES),
    "attacks": [*ATTACKS, *(f"{name} (evaluation)" for name in suite.DESCRIPTIONS)],
    "recipes": list(recipes.RECIPES),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_a_group(kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # a line stays a line however narrow the screen
    found = call(capsys, "list", kind)
    assert found.code == 0
    title, *lines = found.out.splitlines()
    assert title == kind
    width = 2 + max(map(len, GROUPS[kind]))
    assert [line[:width].strip() for line in lines] == GROUPS[kind]
    assert all(line[width:].strip() for line in lines)


def test_all_groups(capsys: pytest.CaptureFixture[str]) -> None:
    lines = call(capsys, "list").out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(GROUPS)
    assert len(lines) == sum(1 + len(names) for names in GROUPS.values())


def test_an_unknown_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "list", "methds") == "unknown group 'methds': did you mean 'methods'?"
