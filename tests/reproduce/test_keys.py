"""The key of a run: stable when fields are added, another when they are used."""

from dataclasses import replace

from uiat import recipes
from uiat.config import from_json, to_json
from uiat.reproduce.cell import Cell

CONFIG = recipes.get("digits-resnet8-uiat")
CYCLED = replace(CONFIG, train=replace(CONFIG.train, schedule=replace(CONFIG.train.schedule, low_momentum=0.8)))


def test_an_added_field_counts_when_it_is_used() -> None:
    saved, key = to_json(CONFIG), to_json(CONFIG, key=True)
    assert saved["train"]["schedule"]["low_momentum"] is None
    assert "low_momentum" not in key["train"]["schedule"]
    assert "nesterov" not in key["train"]
    assert to_json(CYCLED, key=True)["train"]["schedule"]["low_momentum"] == 0.8
    assert Cell(CONFIG).key != Cell(CYCLED).key


def test_a_configuration_without_the_field_is_read() -> None:
    assert from_json(to_json(CONFIG, key=True)) == CONFIG
