"""Every hyper-parameter is a flag, and the flag sets it."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import reduce
from typing import Any

import pytest

from tests.support.calls import call, refused_flag
from uiat import recipes
from uiat.cli.options import parse_number
from uiat.cli.train_options import first_config, parse_recipe
from uiat.config import AnyConfig
from uiat.fields import show_number
from uiat.methods import METHODS

NAMES = [*(f"digits-resnet8-{m}" for m in METHODS), "cifar10-wrn-28-10-uiat", "cifar10-preactresnet18-n-fgsm-uiat"]
"""Every method, and every family of networks."""


def leaves(part: object, path: str = "") -> Iterator[tuple[str, Any]]:
    for entry in fields(part):  # type: ignore[arg-type]
        value, name = getattr(part, entry.name), f"{path}{entry.name}"
        if is_dataclass(value):
            yield from leaves(value, f"{name}.")
        else:
            yield name, value


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def apply(recipe: str, *args: str) -> AnyConfig:
    _, config, rest = first_config(recipe, list(args))
    return parse_recipe(config, rest)[0]


def look(config: AnyConfig, name: str) -> Any:
    return reduce(getattr, name.split("."), config)


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_in_the_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "train", name, "--help-all")
    assert found.code == 0
    listed = set(found.out.replace(",", " ").split())
    names = [leaf for leaf, _ in leaves(recipes.get_recipe(name))]
    assert len(names) > 30
    assert [leaf for leaf in names if flag(leaf) not in listed] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_number_reaches_the_object(name: str) -> None:
    numbers = {
        n: v for n, v in leaves(recipes.get_recipe(name)) if isinstance(v, int | float) and not isinstance(v, bool)
    }
    assert len(numbers) > 10
    wanted = {n: v + 1 if isinstance(v, int) else v / 2 + 1 / 3 for n, v in numbers.items()}
    config = apply(name, *(word for n, v in wanted.items() for word in (flag(n), repr(v))))
    assert {n: look(config, n) for n in wanted} == wanted
    assert {n: v for n, v in leaves(config) if n not in wanted} == {
        n: v for n, v in leaves(recipes.get_recipe(name)) if n not in wanted
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_switch_reaches_the_object(name: str) -> None:
    switches = {n: v for n, v in leaves(recipes.get_recipe(name)) if isinstance(v, bool)}
    assert {"data.flip", "data.download"} <= switches.keys()
    for switch, value in switches.items():
        path, _, last = switch.rpartition(".")
        config = apply(name, flag(f"{path}.{'no-' if value else ''}{last}"))
        assert look(config, switch) is not value


@pytest.mark.parametrize(
    ("recipe", "args", "leaf", "value"),
    [
        ("uiat", "--method.attack.eps 8/255", "method.attack.eps", 8 / 255),
        ("uiat", "--method.lam 7/2", "method.lam", 3.5),
        ("uiat", "--method.momentum.no-enabled", "method.momentum.enabled", False),
        ("uiat", "--method.inverse.beta 0", "method.inverse.beta", 0.0),
        ("uiat", "--method.attack.step None", "method.attack.step", None),
        ("uiat", "--method.attack.loss margin", "method.attack.loss", "margin"),
        ("uiat", "--train.schedule.name piecewise", "train.schedule.name", "piecewise"),
        ("uiat", "--train.schedule.milestones 1/2 3/4 0.9", "train.schedule.milestones", (0.5, 0.75, 0.9)),
        ("uiat", "--validate.eps 4/255", "validate.eps", 4 / 255),
        ("uiat", "--validate.norm l2", "validate.norm", "l2"),
        ("uiat", "--train.micro-batch 32", "train.micro_batch", 32),
        ("uiat", "--model.blocks 2 2", "model.blocks", (2, 2)),
        ("uiat", "--data.no-download", "data.download", False),
        ("uiat", "--data cifar100", "data.name", "cifar100"),
        ("uiat", "--data=mine.npz", "data.name", "mine.npz"),
        ("uiat", "--model wrn-10-1 --model.widen 3", "model.widen", 3),
        ("uiat", "--seed 7", "seed", 7),
        ("uiat-oneoff", "--method.one-off.epoch 1/2", "method.one_off.epoch", 0.5),
        ("hat", "--method.helper runs/natural", "method.helper", "runs/natural"),
        ("n-fgsm", "--method.uiat.enabled --method.uiat.lam 2", "method.uiat.lam", 2.0),
        ("rs-fgsm", "--method.attack.alpha 5/4", "method.attack.alpha", 1.25),
    ],
)
def test_a_flag(recipe: str, args: str, leaf: str, value: object) -> None:
    assert look(apply(f"digits-resnet8-{recipe}", *args.split()), leaf) == value


def test_no_flags_change_nothing() -> None:
    for name in NAMES:
        assert apply(name) == recipes.get_recipe(name)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--method.attack.eps x", "'x' is not a number"),
        ("--method.attack.eps 8/0", "'8/0' is not a number"),
        ("--train.epochs 2.5", "--train.epochs"),
        ("--train.schedule.name cosine", "invalid choice 'cosine'"),
        ("--method.lamb 3", "--method.lam"),
        ("--method uait", "--method"),
        ("--seed", "--seed"),
        ("uiat", "uiat"),
    ],
)
def test_an_invalid_flag(args: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused_flag(capsys, "train", "digits-resnet8-uiat", *args.split())


@pytest.mark.parametrize(
    ("text", "value"),
    [("8/255", 8 / 255), ("0.03", 0.03), ("1e-3", 1e-3), ("-1/2", -0.5), ("7/2", 3.5), ("1.5/3", 0.5), ("3", 3.0)],
)
def test_a_number_is_parsed(text: str, value: float) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize("text", ["", "x", "8/", "/255", "8/0", "1/2/3", "8 of 255"])
def test_an_invalid_number(text: str) -> None:
    with pytest.raises(ValueError, match="8/255"):
        parse_number(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(8 / 255, "8/255"), (0.5, "0.5"), (0.2, "0.2"), (3.5, "3.5"), (0.0, "0.0"), (-4 / 255, "-4/255")],
)
def test_a_number_is_shown(value: float, text: str) -> None:
    assert show_number(value) == text
    assert parse_number(text) == value
