"""The paper's hyper-parameters one by one, and a step of every run of every scale."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from uiat.attacks import PGD
from uiat.config import AnyConfig
from uiat.data import split_sizes
from uiat.engine.setup import build_state
from uiat.engine.step import train_step
from uiat.methods import HAT
from uiat.models import PreActResNet, ResNet, WideResNet
from uiat.reproduce.cell import Cell, merge
from uiat.reproduce.claims_list import all_claims
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.experiments.sweeps import front_cells
from uiat.reproduce.experiments.tables import TABLE2_METHODS, network_timings, table1, table1_last
from uiat.reproduce.measures import Attacked
from uiat.reproduce.scale import Scale
from uiat.reproduce.scales import SCALES
from uiat.targets import InstanceInverse
from uiat.types import Batch, Clock, DataSpec

PAPER, CPU = SCALES["paper"], torch.device("cpu")
EPS = 8 / 255


def runs(scale: Scale) -> list[Cell]:
    return merge(cell for build in EXPERIMENTS.values() for cell in build(scale).cells(1))


@pytest.mark.parametrize("data", ["CIFAR-10", "CIFAR-100", "SVHN"])
@pytest.mark.parametrize("method", ["sat", "trades", "mart", "hat", "uiat", "uiat-oneoff"])
def test_the_training_of_a2(data: str, method: str) -> None:
    config = PAPER.config(method, data)
    assert config.data.name == {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "SVHN": "svhn"}[data]
    assert (config.data.subset, config.data.size) == (None, None)
    plain = ResNet(blocks=(2, 2, 2, 2), width=64)  # statistics count where normalisation is turned on
    assert config.model == (replace(plain, statistics="cifar100") if data == "CIFAR-100" else plain)
    assert config.train.momentum == 0.9
    assert config.train.batch_size == 128
    assert (config.train.schedule.name, config.train.schedule.lr) == ("onecycle", 0.1)
    assert config.train.weight_decay == 5e-4
    assert config.train.epochs == (30 if data == "SVHN" else 100)


@pytest.mark.parametrize("data", ["CIFAR-10", "CIFAR-100", "SVHN"])
@pytest.mark.parametrize("method", ["sat", "trades", "mart", "hat", "iat", "uiat", "uiat-oneoff"])
def test_the_attack_of_a2(data: str, method: str) -> None:
    attack: PGD = PAPER.config(method, data).method.attack  # type: ignore[assignment]
    assert attack.steps == 10
    assert attack.step == (1 / 255 if data == "SVHN" else 2 / 255)
    assert attack.eps == EPS
    assert attack.norm == "linf"


@pytest.mark.parametrize("data", ["CIFAR-10", "CIFAR-100", "SVHN"])
def test_the_inverse_of_a2(data: str) -> None:
    iat: Any = PAPER.config("iat", data).method
    uiat: Any = PAPER.config("uiat", data).method
    one_off: Any = PAPER.config("uiat-oneoff", data).method
    epochs = PAPER.config("uiat", data).train.epochs
    assert [method.inverse.eps for method in (iat, uiat, one_off)] == [4 / 255] * 3
    assert (iat.inverse.steps, iat.inverse.step) == (5, 2 / 255)
    assert (uiat.inverse.step, one_off.inverse.step) == (4 / 255, 4 / 255)
    assert [method.lam for method in (iat, uiat, one_off)] == [3.0 if data == "SVHN" else 3.5] * 3
    assert (uiat.inverse.beta, one_off.inverse.beta) == (1.0, 1.0)
    assert (uiat.momentum.enabled, uiat.momentum.gamma) == (True, 0.9)
    assert not hasattr(one_off, "momentum"), "A.2: no momentum with the one-off strategy"
    assert Clock(1, 0, epochs).epoch_at(uiat.momentum.start) == (22 if data == "SVHN" else 75)
    assert Clock(1, 0, epochs).epoch_at(one_off.one_off.epoch) == (24 if data == "SVHN" else 80)


def test_the_attacks_of_table_1() -> None:
    pgd, cw, robust = (PAPER.attacked(column) for column in ("PGD", "CW", "AA"))
    assert (pgd.attack, cw.attack, robust.attack) == ("pgd-20", "cw", "autoattack")
    assert (pgd.n, cw.n, robust.n) == (None, None, None), "the whole test set"
    config = PAPER.config("uiat", "SVHN")
    attack = config.validate.attack(config.method)
    assert (attack.eps, attack.steps, attack.step) == (EPS, 20, None)  # None is ε/4: 2/255


def test_all_have_the_cheaper_attack_at_cpu_and_cifar_10_autoattack_as_well() -> None:
    """The paper's figure under AutoAttack stands beside both; at the paper's scale all have AutoAttack alone."""
    cpu = SCALES["cpu"]
    entries = {(e.group, e.column): e for e in table1_last(cpu).entries if e.row == "SAT"}
    first, second = (cpu.data[name] for name in ("CIFAR-10", "CIFAR-100"))
    assert [column for group, column in entries if group == first] == ["Natural", "PGD", "CW", "Robust", "AA"]
    assert [column for group, column in entries if group == second] == ["Natural", "PGD", "CW", "Robust"]
    figures = {e.column: e.paper for e in table1(cpu).entries if e.row == "SAT"}
    assert (figures["CW"], figures["Robust"], figures["AA"]) == ("50.17", "47.68", "47.68")
    assert entries[first, "AA"].reading.measure == Attacked("autoattack", 1000, "last")
    assert entries[second, "Robust"].reading.measure == Attacked("apgd-ce+apgd-t", 1000, "last")
    assert {e.column for e in table1(PAPER).entries} == {"Natural", "PGD", "CW", "AA"}
    claim = next(c for c in all_claims(cpu) if c.name == "uiat-over-sat-cifar-100")
    (part,) = (p for p in claim.comparisons if p.text.startswith("Robust"))
    assert float(part.paper) == pytest.approx(25.73 - 23.18)


@pytest.mark.parametrize(("network", "depth"), [("WRN-28", 28), ("WRN-34", 34)])
def test_the_networks_of_table_2(network: str, depth: int) -> None:
    timing = network_timings(PAPER)[network]
    assert timing.model == WideResNet(depth=depth, widen=10)
    assert timing.batch_size == 128
    assert timing.methods == ("natural", "trades", "hat", "iat", "uiat", "uiat-oneoff")
    assert timing.steps == pytest.approx((50_000 - 1024) / 128)


@pytest.mark.parametrize("levels", [10, 12, 16])
@pytest.mark.parametrize("method", ["trades", "hat", "uiat", "uiat-oneoff"])
def test_table_3_changes_the_radius_alone(levels: int, method: str) -> None:
    config = PAPER.larger(method, levels)
    own: Any = config.method
    assert own.attack.eps == levels / 255
    assert config.validate.attack(own).eps == levels / 255
    back = replace(config, method=replace(own, attack=replace(own.attack, eps=EPS)))
    assert back == PAPER.config(method)


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_the_front_of_sat_is_measured_at_one_radius(scale: Scale) -> None:
    usual = scale.config("sat")
    attacks: list[Any] = []
    for config in (cell.config for cell in front_cells(scale, "SAT (ε)")):
        own: Any = config.method
        attacks.append(own.attack)
        assert config.validate.attack(own).eps == scale.eps, "the radius of validation is that of all measurements"
        attack = replace(own.attack, eps=scale.eps)
        assert replace(config, method=replace(own, attack=attack), validate=usual.validate) == usual
    assert [attack.eps for attack in attacks] == pytest.approx([k / 8 * scale.eps for k in scale.fronts["sat"]])


@pytest.mark.parametrize("levels", [6, 8, 10])
def test_table_5(levels: int) -> None:
    for method in ("n-fgsm", "rs-fgsm", "gradalign"):
        config, plus = PAPER.single_step(method, levels), PAPER.single_step(f"{method}-uiat", levels)
        for own in (config, plus):
            assert own.method.attack.eps == levels / 255  # type: ignore[union-attr]
            plan = own.train.schedule
            rate = (0.3, 0.4, None) if method == "gradalign" else (0.2, 0.5, 0.8)
            assert (own.train.epochs, plan.name) == (30, "triangular")
            assert (plan.lr, plan.warmup, plan.low_momentum) == rate, "the code of GradAlign and of N-FGSM"
            assert own.model == PreActResNet(blocks=(2, 2, 2, 2), width=64, shortcut="raw", normalize=True)
            assert not own.train.nesterov
            assert (own.data.name, own.data.subset, own.train.batch_size) == ("cifar10", None, 128)
            assert (own.train.momentum, own.train.weight_decay) == (0.9, 5e-4)
        uiat: Any = plus.method.uiat  # type: ignore[attr-defined]
        assert (uiat.enabled, uiat.inverse.beta) == (True, 0.0), "§4.3: β = 0"
        assert replace(plus.method, uiat=config.method.uiat) == config.method  # type: ignore[attr-defined,type-var]
    align: Any = PAPER.single_step("gradalign", levels).method
    assert align.lam_align == {6: 0.112, 8: 0.2, 10: 0.356}[levels]


@pytest.mark.parametrize(("data", "ratio"), [("CIFAR-10", 0.3), ("CIFAR-100", 0.4)])
@pytest.mark.parametrize("network", ["PRN-18", "WRN-28-10"])
def test_table_4(data: str, ratio: float, network: str) -> None:
    for method in ("trades", "hat", "uiat", "uiat-oneoff"):
        config = PAPER.generated(method, data, network)
        assert config is not None
        network_of: dict[str, Any] = {
            "PRN-18": PreActResNet(blocks=(2, 2, 2, 2), width=64, shortcut="raw-3x3"),
            "WRN-28-10": WideResNet(depth=28, widen=10),
        }
        options: dict[str, Any] = {"activation": "silu", "normalize": True, "norm_momentum": 0.01}
        options["statistics"] = data.lower().replace("-", "")
        assert config.model == replace(network_of[network], **options)
        assert (config.train.epochs, config.train.batch_size) == (400, 512)
        assert (config.train.schedule.name, config.train.schedule.lr) == ("onecycle", 0.2)
        assert (config.train.momentum, config.train.schedule.low_momentum) == (0.95, 0.85)
        assert config.data.rotation == (15.0 if data == "CIFAR-100" else 0.0)
        assert config.data.generated.original == ratio
        attack: Any = config.method.attack
        assert (attack.eps, attack.step, attack.steps) == (EPS, 2 / 255, 10)
        assert (config.train.averaging.enabled, config.train.averaging.decay) == (True, 0.995)
    uiat, one_off = (PAPER.generated(m, data, network) for m in ("uiat", "uiat-oneoff"))
    assert uiat is not None
    assert one_off is not None
    for own in (uiat.method, one_off.method):
        assert (own.lam, own.inverse.beta) == (3.5, 1.0)  # type: ignore[attr-defined,union-attr]
        assert (own.inverse.eps, own.inverse.step) == (4 / 255, 4 / 255)  # type: ignore[union-attr]
    assert uiat.method.momentum.gamma == 0.9  # type: ignore[attr-defined]
    assert Clock(1, 0, 400).epoch_at(uiat.method.momentum.start) == 350  # type: ignore[attr-defined]
    assert Clock(1, 0, 400).epoch_at(one_off.method.one_off.epoch) == 320  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["smoke", "cpu"])
def test_table_4_elsewhere_counts_epochs_in_proportion(name: str) -> None:
    config = SCALES[name].generated("uiat", "CIFAR-10", "PRN-18")
    hat = SCALES[name].generated("hat", "CIFAR-10", "PRN-18")
    assert config is not None
    assert hat is not None
    epochs = config.train.epochs
    assert Clock(1, 0, epochs).epoch_at(config.method.momentum.start) == epochs * 350 // 400  # type: ignore[attr-defined]
    assert hat.method.helper_epochs == max(1, epochs // 8)
    assert SCALES[name].generated("uiat", "CIFAR-100", "PRN-18") is None


def test_figure_2_doubles_the_epochs() -> None:
    watched = [cell for cell in runs(PAPER) if cell.watch]
    assert [cell.config.train.epochs for cell in watched] == [200, 200]
    assert {cell.watch.steps for cell in watched if cell.watch} == {20}


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_grids_hold_the_papers_choice(scale: Scale) -> None:
    assert 3.5 in scale.lam
    assert 1.0 in scale.beta
    assert 0.9 in scale.gamma
    assert 0.75 in scale.start
    assert 0.8 in scale.one_off
    assert 0.0 in scale.halves
    assert 1.0 in scale.halves
    assert 1.0 in scale.difference
    assert max(scale.difference) > 1


def distinct(scale: Scale) -> list[AnyConfig]:
    """Return runs of a scale with each network, with each data set, and with each kind of method."""
    seen: set[str] = set()
    found = []
    timed = [scale.config(method, network=network) for network in scale.networks for method in TABLE2_METHODS.values()]
    for config in [*(cell.config for cell in runs(scale)), *timed]:
        parts = [type(getattr(config.method, name, None)).__name__ for name in ("attack", "inverse", "momentum")]
        switches = [getattr(getattr(config.method, n, None), "enabled", None) for n in ("momentum", "uiat")]
        keys = {f"{config.data.name} {config.model}", f"{type(config.method).__name__} {parts} {switches}"}
        found += [] if keys <= seen else [config]
        seen |= keys
    return found


def narrow(config: AnyConfig) -> AnyConfig:
    """Return the run with a network of the same kind and depth and few channels."""
    model: Any = config.model
    few = {"widen": 1} if isinstance(model, WideResNet) else {"width": 8}
    return replace(config, model=replace(model, **few))


CASES = [
    pytest.param(change(config), id=f"{name}-{number}{ending}", marks=marks)
    for name, scale in SCALES.items()
    for number, config in enumerate(distinct(scale))
    for change, ending, marks in [(narrow, "", []), (lambda config: config, "-whole", [pytest.mark.slow])]
]


@pytest.mark.parametrize("config", CASES)
def test_every_kind_of_run_builds_and_does_a_step(config: AnyConfig) -> None:
    """Two made-up images in place of the data, one attack step."""
    real = split_sizes(config.data).spec
    spec = DataSpec(real.num_classes, 2, real.shape)
    config = replace(config, method=one_step(config.method))
    helper = config.model.build(spec).requires_grad_(False) if isinstance(config.method, HAT) else None
    state = build_state(config, spec, CPU, helper)
    before = next(state.model.parameters()).detach().clone()
    x = torch.rand(2, *spec.shape, generator=torch.Generator().manual_seed(0))
    for clock in moments(config):
        fault = train_step(state, Batch(x, torch.tensor([0, 1]), torch.arange(2)), clock, lr=0.1)
        assert fault is None
    assert not torch.equal(before, next(state.model.parameters()))


def moments(config: AnyConfig) -> list[Clock]:
    """Return the first epoch, T and the one after it, or T' and the one after it."""
    own: Any = config.method
    clock = Clock(1, 0, config.train.epochs)
    parts = [(own, "momentum", "start"), (own, "one_off", "epoch"), (getattr(own, "uiat", None), "one_off", "epoch")]
    when = [getattr(getattr(holder, part, None), field, None) for holder, part, field in parts]
    found = {clock.epoch_at(moment) for moment in when if moment is not None}
    return [Clock(epoch, 0, config.train.epochs) for epoch in sorted({1} | found | {epoch + 1 for epoch in found})]


def one_step(method: Any) -> Any:
    changes: dict[str, Any] = {}
    if isinstance(getattr(method, "attack", None), PGD):
        changes["attack"] = replace(method.attack, steps=1)
    if isinstance(getattr(method, "inverse", None), InstanceInverse):
        changes["inverse"] = replace(method.inverse, steps=1)
    return replace(method, **changes)


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_every_run_has_a_label_for_the_plan(scale: Scale) -> None:
    assert [cell.name for cell in runs(scale) if not all(cell.labels) or not cell.labels] == []
