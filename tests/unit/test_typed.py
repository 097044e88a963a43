"""Values read from files, checked against declared types."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from uiat.attacks import PGD, Attack
from uiat.config import Config
from uiat.data.data_config import DataConfig
from uiat.errors import UserError
from uiat.methods import Natural
from uiat.typed import check_fields, fits


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (int, [0, -3], [True, 1.0, "1", None, 2**63, 10**400]),
        (float, [0, 0.5, float("nan")], [True, "0.5", None, [], 10**30]),
        (bool, [True], [1, None]),
        (str | None, ["", None], [0, b""]),
        (Literal["a", 1], ["a", 1], ["b", True, None, ["a"], {}]),
        (tuple[int, ...], [(), (1, 2)], [("x",), 3, "ab"]),
        (tuple[float, float], [(0, 1), [0, 1]], [(0,), (0, 1, 2), ("a", "b")]),
        (dict[str, list[int]], [{}, {"a": [1]}], [[], {"a": 1}, {1: [1]}]),
        (Attack, [PGD()], ["pgd", DataConfig(), None]),
        (Any, [None, 3, {}], []),
    ],
)
def test_fits(kind: Any, good: list[Any], bad: list[Any]) -> None:
    assert all(fits(value, kind) for value in good)
    assert not any(fits(value, kind) for value in bad)


def test_the_field_is_named() -> None:
    check_fields(DataConfig())
    with pytest.raises(UserError, match=r"^DataConfig\.size is '\(8,\)', not of type int"):
        check_fields(DataConfig(size=(8,)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"^Config\.model is .PGD.*, not of type ModelConfig\.$"):
        check_fields(Config(DataConfig(), PGD(), Natural()))


def test_annotations_that_cannot_be_looked_up_are_not_compared() -> None:
    @dataclass(frozen=True)
    class Custom:
        width: "Nowhere" = 3  # type: ignore[name-defined]  # noqa: F821

    check_fields(Custom())
