"""The recipes say what the paper's appendix A.2 says, and what the code of the baselines' authors does."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.calls import refused
from uiat import recipes
from uiat.config import AWP, Averaging
from uiat.data.loader import Mixture
from uiat.recipes import plus, small
from uiat.types import Clock

NAMES = [f"{data}-ddpm-{model}" for data in ("cifar10", "cifar100") for model in ("preactresnet18", "wrn-28-10")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["uiat", "uiat-oneoff", "trades", "hat"])
def test_the_setting(name: str, method: str) -> None:
    config: Any = recipes.get_recipe(f"{name}-{method}")
    plan, ratio = config.train, 0.3 if name.startswith("cifar10-") else 0.4
    assert (plan.epochs, plan.batch_size, plan.schedule.lr, plan.schedule.warmup) == (400, 512, 0.2, 0.25)
    assert (plan.momentum, plan.schedule.low_momentum) == (0.95, 0.85)  # the defaults of OneCycleLR
    assert (plan.weight_decay, plan.decay_norm) == (5e-4, False)
    assert (plan.averaging.enabled, plan.averaging.decay, plan.awp.enabled) == (True, 0.995, False)
    assert config.data.name == name.split("-")[0]
    assert config.data.generated.file == f"{config.data.name}_ddpm.npz"
    assert config.data.generated.original == ratio
    assert (config.model.activation, config.model.normalize, config.model.norm_momentum) == ("silu", True, 0.01)
    assert config.model.statistics == config.data.name
    assert config.data.rotation == (15.0 if config.data.name == "cifar100" else 0.0)
    index = Mixture(48_976, 1_000_000, 512, ratio, 0).at(0)
    assert int((index < 48_976).sum()) == round(512 * ratio)


@pytest.mark.parametrize(("data", "rotation"), [("cifar10", 0.0), ("cifar100", 15.0)])
def test_what_is_taken_from_hats_code(data: str, rotation: float) -> None:
    hat, uiat = (recipes.get_recipe(f"{data}-resnet18-{method}") for method in ("hat", "uiat"))
    assert (hat.method.helper_epochs, uiat.method.helper_epochs) == (50, None)
    for config in (hat, uiat):
        assert config.data.rotation == rotation
        assert (config.model.normalize, config.model.statistics) == (False, data)  # type: ignore[attr-defined]
        assert (config.train.momentum, config.train.schedule.low_momentum) == (0.9, None)  # as A.2 states


def test_the_methods() -> None:
    clock = Clock(1, 0, 400)
    uiat, one_off, trades, hat = (
        recipes.get_recipe(f"cifar10-ddpm-wrn-28-10-{m}").method for m in ("uiat", "uiat-oneoff", "trades", "hat")
    )
    found: Any = uiat
    assert (found.lam, found.momentum.gamma, clock.epoch_at(found.momentum.start)) == (3.5, 0.9, 350)
    found = one_off
    assert (found.lam, clock.epoch_at(found.one_off.epoch)) == (3.5, 320)
    found = trades
    assert found.omega == 6.0
    found = hat
    assert (found.beta, found.gamma) == (3.5, 0.5)
    baseline: Any
    for baseline in (trades, hat):
        assert (baseline.crafting, baseline.label_smoothing) == ("batch", 0.1)
        assert (baseline.attack.start, baseline.attack.loss, baseline.attack.steps) == ("uniform", "kl", 10)


def test_mart_weighs_more_on_wide_networks() -> None:
    narrow, wide = (recipes.get_recipe(f"cifar10-{model}-mart").method for model in ("resnet18", "wrn-34-10"))
    assert (narrow.beta, wide.beta) == (5.0, 6.0)  # type: ignore[attr-defined]


def test_without_the_file(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says where the file belongs (here with digits, which need no download)."""
    folder = tmp_path_factory.mktemp("data")
    monkeypatch.chdir(folder)
    args = ["cifar10-ddpm-preactresnet18-uiat", "--data", "digits", "--data-dir", str(folder), "--out", "run"]
    message = refused(capsys, "train", *args)
    assert f"{folder}/cifar10_ddpm.npz" in message
    assert "--data.generated.file" in message


def test_uiat_plus_changes_only_its_weight_and_its_boosters() -> None:
    plain = small.cifar10_small("uiat-oneoff")
    ours = plus.uiat_plus(plain)
    method: Any = ours.method
    assert (method.lam, method.label_smoothing, ours.train.averaging.enabled) == (plus.LAM, plus.SMOOTHING, True)
    assert not ours.train.awp.enabled
    back = replace(method, lam=plain.method.lam, label_smoothing=0.0)  # type: ignore[attr-defined]
    assert replace(ours, method=back, train=replace(ours.train, averaging=Averaging())) == plain
    with_all = plus.uiat_plus(plain, plus.BOOSTERS)
    assert with_all.train.awp.enabled
    assert replace(with_all, train=replace(with_all.train, awp=AWP())) == ours


def test_boosters_go_with_every_method_of_the_table() -> None:
    for method in ("sat", "trades", "mart", "uiat"):
        plain = small.cifar10_small(method)
        ours: Any = plus.boosted(plain).method
        assert ours == replace(plain.method, label_smoothing=plus.SMOOTHING)  # type: ignore[type-var]
