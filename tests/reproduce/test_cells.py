"""Equal configurations are one run, others are not; whoever asks first."""

from dataclasses import replace

import pytest

from uiat.methods import METHODS
from uiat.reproduce import scales
from uiat.reproduce.cell import Cell, merge, method_name
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.experiments.tables import ablated
from uiat.reproduce.measures import Attacked, Measure, Watch, measure_key
from uiat.reproduce.scales import SCALES, Scale, change_method

SMOKE = scales.get("smoke")


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_table_1s_uiat_is_table_6s_last_row(scale: Scale) -> None:
    assert Cell(ablated(scale, "5")).key == Cell(scale.config("uiat")).key
    assert len({Cell(ablated(scale, row)).key for row in "12345"}) == 5


def test_anything_of_the_configuration_changes_the_key() -> None:
    config = SMOKE.config("uiat")
    cell = Cell(config)
    assert Cell(SMOKE.config("uiat")).key == cell.key
    others = [
        replace(config, seed=1),
        replace(config, train=replace(config.train, epochs=9)),
        replace(config, data=replace(config.data, subset=799)),
        change_method(config, None, lam=3.6),
        change_method(config, "inverse", beta=0.5),
    ]
    assert len({cell.key, *(Cell(other).key for other in others)}) == 6
    assert Cell(config, watch=Watch()).key != cell.key
    assert Cell(config, (Attacked("natural"),)).key == cell.key, "what is measured is no part of the run"


def test_merging_keeps_every_measurement_once() -> None:
    first, second = Attacked("natural"), Attacked("pgd-20", 10)
    config, other = SMOKE.config("sat"), SMOKE.config("trades")
    merged = merge([Cell(config, (first,)), Cell(other, (first,)), Cell(config, (second, first))])
    assert [(cell.config, cell.measures) for cell in merged] == [(config, (first, second)), (other, (first,))]


def test_measurements_have_names_of_their_own() -> None:
    measures: list[Measure] = [
        Attacked("pgd-20"),
        Attacked("pgd-20", 10),
        Attacked("cw"),
        SMOKE.halves_curve(),
        SMOKE.inverse(),
    ]
    assert len({measure_key(measure) for measure in measures}) == 5


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_found_by_its_parts(name: str) -> None:
    config = SMOKE.config(name)
    assert method_name(config) == name
    assert method_name(replace(config, method=METHODS[name])) == name


def test_experiments_share_runs() -> None:
    cells = [cell for build in EXPERIMENTS.values() for cell in build(SMOKE).cells(2)]
    merged = merge(cells)
    assert len({cell.name for cell in merged}) == len(merged) < len({(c.key, c.measures) for c in cells})
    assert {cell.config.seed for cell in merged} == {0, 1}
