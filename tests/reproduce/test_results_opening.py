"""The opening of the results page: its sentences and verdicts follow from the runs, on files with known differences."""

from pathlib import Path

import pytest

from benchmarks.results_opening import (
    INVERSE_STEP,
    KL_STEP,
    MOMENTUM_STEP,
    NAMES,
    STEPS,
    advice,
    draw_forest,
    found_steps,
    opening,
    parts_table,
    short_takeaways,
    takeaways,
    which_method,
)
from benchmarks.results_page import readme_table
from benchmarks.results_pairs import Published
from tests.support.tiny import first_of, trained
from uiat.reproduce.cell import Cell
from uiat.reproduce.experiments.beyond import CONTROL_COLUMNS, INVERSE, KL, MOMENTUM, control_runs
from uiat.reproduce.experiments.sweeps import front_cells
from uiat.reproduce.scales import SCALES

SMOKE, N = SCALES["smoke"], 400
Key = tuple[str, str]
SAT, UIAT = ("UIAT", "SAT"), ("UIAT", INVERSE)
BECAUSE = "Because of which part?"


def finished(out: Path, robust: dict[Key, float], natural: float = 0.5, seeds: int = 3) -> Published:
    """Write runs of the control with these robust accuracies, and equal natural ones but for UIAT's."""
    for key, share in robust.items():
        for column in CONTROL_COLUMNS:
            own = share if column != "Natural" else natural if key == UIAT else 0.5
            result = {"accuracy": own}, {"correct": first_of(N, own)}
            for seed in range(seeds):
                trained(Cell(control_runs(SMOKE)[key]), out, seed).keep(SMOKE.attacked(column), result)
    return Published(out, SMOKE, seeds=3)


def by_part(text: str) -> dict[str, str]:
    """Split the sentence about the parts of UIAT: KL, momentum, inverse adversary."""
    return dict(zip((KL_STEP, MOMENTUM_STEP, INVERSE_STEP), text.split(";"), strict=True))


@pytest.mark.parametrize(
    ("uiat", "natural", "facts"),
    [
        (0.4, 0.6, ("more accurate than SAT", "Natural +10.00", "PGD-20 +20.00")),
        (0.4, 0.4, ("trade-off", "PGD-20 +20.00", "Natural -10.00")),
        (0.1, 0.5, ("less accurate than SAT", "PGD-20 -10.0", "undecided: Natural")),
        (0.2, 0.5, ("no effect",)),
    ],
)
def test_the_first_sentence_says_whether_uiat_helps(
    uiat: float, natural: float, facts: tuple[str, ...], tmp_path: Path
) -> None:
    runs = finished(tmp_path, {SAT: 0.2, UIAT: uiat}, natural)
    sentence = takeaways(runs, found_steps(runs))["Does UIAT help?"]
    assert all(each in sentence for each in facts), sentence
    assert "so far" not in sentence


@pytest.mark.parametrize("part", [KL, MOMENTUM, INVERSE])
def test_the_second_sentence_names_the_part_that_adds_something(part: str, tmp_path: Path) -> None:
    names = {KL: KL_STEP, MOMENTUM: MOMENTUM_STEP, INVERSE: INVERSE_STEP}
    order = ["SAT", *names]
    shares = {("UIAT", name): 0.4 if order.index(name) >= order.index(part) else 0.2 for name in order}
    runs = finished(tmp_path, shares)
    found = by_part(takeaways(runs, found_steps(runs))[BECAUSE])
    for step, text in found.items():
        assert ("PGD-20 +20.00" in text) == (step == names[part]), text
        assert ("no effect shown, at most 0." in text) == (step != names[part]), text
    short, _ = short_takeaways(runs, found_steps(runs))
    assert "PGD-20 +20.0" in short
    comes, _, open_ = short.partition("no effect shown")
    assert NAMES[names[part]] in comes
    assert NAMES[names[part]] not in open_


def test_without_enough_seeds_the_page_says_so_and_names_the_command(tmp_path: Path) -> None:
    command = "`uiat reproduce control --scale smoke --seeds 3`"
    nothing = Published(tmp_path / "nothing", SMOKE, seeds=3)
    for runs in (nothing, finished(tmp_path / "one", {SAT: 0.2, UIAT: 0.4}, seeds=1)):
        whether, because, _ = takeaways(runs, found_steps(runs)).values()
        assert command in whether
        assert "not decided" in whether
        assert because.count("not decided") == 3
    assert "no runs" in "".join(parts_table(nothing, found_steps(nothing)))
    assert "![" not in "".join(opening(nothing, found_steps(nothing), "x.svg"))
    two = finished(tmp_path / "two", {SAT: 0.2, UIAT: 0.4}, seeds=2)
    assert "(2 of 3 seeds so far)" in takeaways(two, found_steps(two))["Does UIAT help?"]


def test_every_step_compares_runs_that_differ() -> None:
    configs = control_runs(SMOKE)
    assert all(len(set(step.pair(configs))) == 2 for step in STEPS)


def test_the_table_and_the_forest_plot_have_every_measured_step(tmp_path: Path) -> None:
    runs = finished(tmp_path, {SAT: 0.2, ("UIAT", KL): 0.4, UIAT: 0.4})
    found = found_steps(runs)
    rows = [line for line in parts_table(runs, found) if line.startswith("| ")][2:]
    assert len(rows) == len(STEPS)
    assert "| **+20.00** [" in rows[0]
    assert rows[0].endswith("| 3 |")
    figure = draw_forest(found, "title")
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [f"+ {step.part}\nto {step.to}" for step, own in found.items() if own]
    assert len(labels) == 2


@pytest.mark.parametrize(
    ("single", "seeds", "facts"),
    [
        (0.4, 3, ("Use N-FGSM + UIAT at this scale", "no accuracy is lower by a point")),
        (0.6, 3, ("Use N-FGSM + UIAT at this scale", "PGD-20 +20.00")),
        (0.2, 3, ("PGD-20 -20.00", "UIAT where accuracy does")),
        (0.4, 2, ("not yet decided", "fewer than 3 seeds", "--seeds 3`")),
    ],
)
def test_the_cheap_method_is_advised_only_if_it_loses_nothing(
    single: float, seeds: int, facts: tuple[str, ...], tmp_path: Path
) -> None:
    runs = finished(tmp_path, {UIAT: 0.4, ("N-FGSM", INVERSE): single}, seeds=seeds)
    verdict = advice(runs)
    assert all(each in verdict for each in facts), verdict
    assert verdict in takeaways(runs, found_steps(runs)).values()
    assert any(line.startswith("| N-FGSM + UIAT | ") for line in which_method(runs))


def test_a_loss_that_is_not_excluded_is_named(tmp_path: Path) -> None:
    """No column is significantly lower, but one may be by more than a point."""
    uiat, single = ("UIAT", INVERSE), ("N-FGSM", INVERSE)
    for key, shares in {uiat: (0.40, 0.42, 0.44), single: (0.44, 0.42, 0.40)}.items():
        for seed, share in enumerate(shares):
            store = trained(Cell(control_runs(SMOKE)[key]), tmp_path, seed)
            for column in CONTROL_COLUMNS:
                own = share if column == "PGD" else 0.5
                store.keep(SMOKE.attacked(column), ({"accuracy": own}, {"correct": first_of(N, own)}))
    verdict = advice(Published(tmp_path, SMOKE, seeds=3))
    assert "where cost matters" in verdict
    assert "a loss of a point is not excluded for PGD-20." in verdict


def test_sat_with_a_larger_radius_is_compared_beside_uiat(tmp_path: Path) -> None:
    runs = finished(tmp_path, {SAT: 0.2, UIAT: 0.4})
    larger = front_cells(SMOKE, "SAT (ε)")[1]
    for column in CONTROL_COLUMNS:
        for seed in range(3):
            store = trained(Cell(larger.config), tmp_path, seed)
            store.keep(SMOKE.attacked(column), ({"accuracy": 0.3}, {"correct": first_of(N, 0.3)}))
    sentence = takeaways(runs, found_steps(runs))["Does UIAT help?"]
    assert "UIAT against SAT trained at ε = 0.125: above: Natural +20.00" in sentence
    assert "SAT, ε = 0.125" in "".join(which_method(runs))


def test_readmes_table_has_the_methods_with_runs_and_fits_a_phone(tmp_path: Path) -> None:
    runs = finished(tmp_path, {UIAT: 0.4, SAT: 0.2})
    head, _, *rows = readme_table(runs)
    assert [row.split(" | ")[0] for row in rows] == ["| SAT", "| UIAT"]
    assert "| 40.0 ± 0.0 |" in rows[1]
    assert all(len(line) <= 70 for line in (head, *rows))
