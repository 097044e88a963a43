"""Verdicts, and the list of claims."""

import json
import re
from pathlib import Path

import pytest

from tests.support.tiny import TINY, tiny_scale
from uiat.evaluation.intervals import LEVEL, Difference
from uiat.reproduce.claims import (
    NOT_MEASURED,
    RULE,
    UNDECIDED,
    Claim,
    Comparison,
    Finding,
    corrected,
    decide,
    missing,
    overall,
    write_claims,
)
from uiat.reproduce.claims_list import all_claims
from uiat.reproduce.experiments.tables import ABLATED_PARTS, components
from uiat.reproduce.scale import Scale
from uiat.reproduce.scales import SCALES

NOTHING = Finding(Comparison("a", None), None)


def found(low: float, high: float, margin: float | None = None, seeds: int = 2, stretch: float = 1.0) -> Finding:
    """Return a comparison whose interval is wider by a factor at every level above 95 %."""
    center, half = (low + high) / 2, (high - low) / 2

    def interval(level: float) -> tuple[float, float]:
        wide = half * (stretch if level > LEVEL else 1.0)
        return center - wide, center + wide

    return Finding(Comparison("a", None, margin=margin), Difference(center, interval, seeds, 10))


ONE_SEED = "one seed compares networks, not methods"


@pytest.mark.parametrize(
    ("each", "verdict", "why"),
    [
        (found(0.01, 0.05), "holds", ""),
        (found(-0.01, 0.05), UNDECIDED, "the interval contains 0"),
        (found(-0.05, -0.01), "does not hold", ""),
        (found(-0.004, 0.006, 0.01), "holds", ""),
        (found(-0.004, 0.02, 0.01), UNDECIDED, "the interval contains the margin"),
        (found(0.02, 0.05, 0.01), "does not hold", ""),
        (found(-0.05, -0.02, 0.01), "does not hold", ""),
        (found(0.01, 0.05, seeds=1), UNDECIDED, ONE_SEED),
        (found(-0.05, -0.01, seeds=1), UNDECIDED, ONE_SEED),
        (NOTHING, NOT_MEASURED, "no finished runs"),
    ],
)
def test_a_verdict_needs_the_whole_interval_and_two_seeds(each: Finding, verdict: str, why: str) -> None:
    assert (each.verdict, each.why) == (verdict, why)


def test_a_benchmark_needs_no_seeds() -> None:
    def interval(level: float) -> tuple[float, float]:
        return 0.5, 1.0

    assert Finding(Comparison("a", None), Difference(0.7, interval, 1, 5, "rounds")).verdict == "holds"


def test_a_claim_holds_if_all_its_parts_do() -> None:
    holds, unclear, one = found(1, 2), found(-1, 1), found(1, 2, seeds=1)
    assert (overall([holds, holds]), missing([holds, holds])) == ("holds", "")
    for parts, verdict, why in (
        ([holds, unclear], UNDECIDED, "the interval contains 0"),
        ([holds, one], UNDECIDED, ONE_SEED),
        ([holds, NOTHING, holds], UNDECIDED, "no finished runs for 1 of 3 comparisons"),
        ([unclear, NOTHING], UNDECIDED, "the interval contains 0"),
        ([NOTHING], NOT_MEASURED, "no finished runs"),
        ([], NOT_MEASURED, "no finished runs"),
    ):
        assert (overall(parts), missing(parts)) == (verdict, why)


def test_a_claim_is_refuted_by_one_part_at_the_corrected_level() -> None:
    holds, clear, slight = found(1, 2), found(-2, -1), found(-2, -0.1, stretch=2.0)
    assert overall([holds, clear, NOTHING]) == "does not hold"
    assert slight.verdict == "does not hold"
    assert overall([slight]) == overall([slight, NOTHING, found(1, 2, seeds=1)]) == "does not hold", "k is 1"
    assert overall([holds, slight]) == UNDECIDED
    assert missing([holds, slight]).startswith("what fails at 95 % does not at 97.5 %")
    assert corrected([holds] * 10 + [NOTHING]) == pytest.approx(0.995)


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_without_runs_nothing_is_measured(scale: Scale, tmp_path: Path) -> None:
    written = write_claims(all_claims(scale), scale, tmp_path, seeds=2)
    assert len(written) == 43
    assert {overall(parts) for _, parts in written} == {NOT_MEASURED}
    assert "not measured: no finished runs" in (tmp_path / "claims.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_the_papers_own_figures_satisfy_every_comparison(scale: Scale) -> None:
    stated = [(claim.name, part) for claim in all_claims(scale) for part in claim.comparisons if part.paper]
    radii = 3 * len(scale.larger_radii) + 3 * 2 * len(scale.single_step_radii)
    assert len(stated) == (4 * 3 + 3) * 4 + 3 + 4 + 4 + 3 + 6 * 3 + 2 * 2 * 2 * 2 + radii
    for name, part in stated:
        gain = float(part.paper)
        satisfied = gain > 0 if part.margin is None else abs(gain) < 100 * part.margin
        assert satisfied, (name, part)


def test_claims_about_table_1_rest_on_the_attack_that_all_runs_are_measured_with() -> None:
    for scale, column, made_by in (("paper", "AA", "table1"), ("cpu", "Robust", "table1-last")):
        claims = {claim.name: claim for claim in all_claims(SCALES[scale])}
        for name in ("uiat-over-sat-cifar-10", "one-off-level-cifar-10"):
            assert [part.text.split(":")[0] for part in claims[name].comparisons] == ["Natural", "PGD", "CW", column]
            assert claims[name].made_by == made_by
    assert claims["uiat-over-sat-cifar-100"].made_by == "table1-last"


def test_what_the_paper_does_not_lift_is_said() -> None:
    claims = {claim.name: claim for claim in all_claims(SCALES["paper"])}
    against = claims["uiat-over-trades-svhn"]
    assert against.text == "UIAT lifts natural and robust accuracy over TRADES (SVHN), except for AA"
    assert (against.comparisons[-1].text, against.comparisons[-1].paper) == ("AA: TRADES above UIAT", "+0.17")
    level = claims["single-step-rs-fgsm"].comparisons[-1]
    assert (level.text, level.paper) == ("Robust at ε = 10/255: RS-FGSM + UIAT level with RS-FGSM", "+0.00")
    assert level.margin is not None
    assert claims["single-step-gradalign"].comparisons[-1].text.endswith(": GradAlign above GradAlign + UIAT")
    assert "except for" not in claims["single-step-n-fgsm"].text + claims["uiat-over-trades-cifar-10"].text


def test_an_ablation_compares_rows_that_differ_in_the_component() -> None:
    claims = {claim.name.upper(): claim for claim in all_claims(SCALES["paper"])}
    for place, name in enumerate(ABLATED_PARTS):
        assert len(claims[name].comparisons) == (3 if name == "UAG" else 4)
        for part in claims[name].comparisons:
            more, less = (components(row) for row in sorted(re.findall(r"row (\d)", part.text), reverse=True))
            assert [k for k in range(3) if more[k] != less[k]] == [place], part.text


def test_a_radius_is_written_as_the_scale_does() -> None:
    texts = {name: [claim.text for claim in all_claims(SCALES[name])] for name in ("smoke", "paper")}
    assert "TRADES wins above ε = 0.1" in texts["smoke"]
    assert "TRADES wins above ε = 8/255" in texts["paper"]
    assert not any("/255" in text for text in texts["smoke"])


def test_every_claim_that_this_scale_can_measure_is_measured(made: Path) -> None:
    with tiny_scale():
        claims = {claim.name: (claim, decide(claim, made, 1)) for claim in all_claims(TINY)}
    for claim, parts in claims.values():
        other_data = claim.name.endswith(("cifar-100", "svhn"))
        if claim.name in ("smaller-gap", "harder-half"):  # the harder halves may be below the floor
            continue
        measured = [part for part in parts if part.comparison.evidence is not None]  # of Table 4, one network here
        assert {each.difference is None for each in measured or parts} == {other_data}, claim.name
        if "faster" not in claim.name:
            assert overall(parts) == (NOT_MEASURED if other_data else UNDECIDED), "one seed decides nothing"


def test_both_files_say_the_same(made: Path) -> None:
    markdown = (made / "claims.md").read_text(encoding="utf-8")
    content = json.loads((made / "claims.json").read_text(encoding="utf-8"))
    assert content["rule"] == RULE
    assert RULE in markdown
    for claim in content["claims"]:
        assert f"## {claim['claim']}" in markdown
        for each in claim["comparisons"]:
            assert f"| {each['text']} |" in markdown
            assert (each["over"] == "rounds") == ("faster" in claim["name"])
            if each["difference"] is not None:
                assert each["interval95"][0] <= each["difference"] <= each["interval95"][1]


def test_claims_name_their_experiments() -> None:
    claims: list[Claim] = all_claims(TINY)
    assert {claim.made_by for claim in claims} >= {"table1", "table2", "table3", "table5", "table6", "fig2", "fig4"}
    assert len({claim.name for claim in claims}) == len(claims)
