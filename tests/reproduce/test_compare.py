"""Paired intervals and verdicts."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reproduce.tiny import TINY, tiny_scale
from uiat.evaluation.difference import paired_difference
from uiat.reproduce.claims import NOT_MEASURED, Claim, Found, Part, decide, missing, overall
from uiat.reproduce.claims_list import all_claims
from uiat.reproduce.claims_output import write_claims
from uiat.reproduce.compare import Difference, paired, paired_times
from uiat.reproduce.evidence import _fall
from uiat.reproduce.scales import SCALES, Scale


def verdicts(seed: int, n: int, share: float) -> torch.Tensor:
    return torch.rand(n, generator=torch.Generator().manual_seed(seed)) < share


@given(st.integers(0, 1000), st.integers(30, 400), st.floats(0.1, 0.9), st.floats(0.1, 0.9))
@settings(max_examples=20, deadline=None)
def test_one_seed_agrees_with_agresti_and_min(seed: int, n: int, first: float, second: float) -> None:
    a, b = verdicts(seed, n, first), verdicts(seed + 5000, n, second)
    found = paired((a.double() - b.double())[None])
    value, (low, high) = paired_difference(a, b)
    width = high - low
    assert found.value == pytest.approx(value)
    assert found.low == pytest.approx(low, abs=0.2 * width)
    assert found.high == pytest.approx(high, abs=0.2 * width)
    assert (found.seeds, found.examples) == (1, n)


def test_networks_that_never_disagree_are_not_known_to_be_equal() -> None:
    few, many = (paired(torch.zeros(1, n)) for n in (10, 1000))
    assert few.low < -0.05 < 0.05 < few.high
    assert 0 < many.high < 0.01


def test_seeds_that_disagree_widen_the_interval() -> None:
    steady, shaky = torch.zeros(4, 500), torch.zeros(4, 500)
    steady[:, :50] = 1.0
    shaky[0, :200] = 1.0
    assert float(steady.mean()) == pytest.approx(float(shaky.mean()))
    assert paired(steady).low > 0.05
    assert paired(shaky).low < 0.02


def test_the_interval_is_the_same_every_time() -> None:
    values = verdicts(1, 200, 0.3)[None].double()
    assert paired(values) == paired(values)


def test_times_are_paired_by_epoch() -> None:
    found = paired_times([1.0, 2.0, 3.0, 4.0], [1.5, 2.6, 3.4, 4.5, 99.0])
    assert found.value == pytest.approx(0.5)
    assert 0.4 <= found.low <= 0.5 <= found.high <= 0.6


def found(low: float, high: float, margin: float | None = None) -> Found:
    return Found(Part("a", None, margin=margin), Difference((low + high) / 2, low, high, 1, 10))


@pytest.mark.parametrize(
    ("each", "verdict", "why"),
    [
        (found(0.01, 0.05), "holds", ""),
        (found(-0.01, 0.05), NOT_MEASURED, "the interval holds 0"),
        (found(-0.05, -0.01), "does not hold", ""),
        (found(-0.004, 0.006, 0.01), "holds", ""),
        (found(-0.004, 0.02, 0.01), NOT_MEASURED, "the interval holds the margin"),
        (found(0.02, 0.05, 0.01), "does not hold", ""),
        (Found(Part("a", None), None), NOT_MEASURED, "no finished runs"),
    ],
)
def test_a_verdict_needs_the_whole_interval(each: Found, verdict: str, why: str) -> None:
    assert (each.verdict, each.why) == (verdict, why)


def test_a_claim_is_as_strong_as_its_weakest_part() -> None:
    holds, unclear, fails, nothing = found(1, 2), found(-1, 1), found(-2, -1), Found(Part("a", None), None)
    assert overall([holds, holds, nothing]) == "holds"
    assert (overall([holds, unclear, nothing]), missing([holds, unclear, nothing])) == (
        NOT_MEASURED,
        "the interval holds 0",
    )
    assert (overall([holds, unclear, fails]), missing([holds, unclear, fails])) == ("does not hold", "")
    assert (overall([nothing]), missing([nothing])) == (NOT_MEASURED, "no finished runs")


@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_without_runs_nothing_is_measured(scale: Scale, tmp_path: Path) -> None:
    written = write_claims(scale, tmp_path, seeds=2)
    assert len(written) == 18
    assert {overall(parts) for _, parts in written} == {"not measured at this scale"}
    assert "not measured at this scale" in (tmp_path / "claims.md").read_text(encoding="utf-8")


def test_every_claim_that_this_scale_can_measure_is_measured(made: Path) -> None:
    with tiny_scale():
        claims = {claim.name: (claim, decide(claim, made, 1)) for claim in all_claims(TINY)}
    for claim, parts in claims.values():
        for each in parts:
            other_data = "CIFAR-100" in each.part.text or "SVHN" in each.part.text
            assert (each.difference is None) == other_data, (claim.name, each.part.text)
    assert claims["uiat-over-trades"][1][-1].part.paper == "-0.17", "SVHN's AutoAttack has TRADES ahead"


def test_the_fall_is_from_the_best_epoch() -> None:
    epochs = [torch.tensor([True, False, False]), torch.tensor([True, True, False]), torch.tensor([False, True, False])]
    assert _fall(epochs).tolist() == [1.0, 0.0, 0.0]


def test_claims_name_their_experiments() -> None:
    claims: list[Claim] = all_claims(TINY)
    assert {claim.made_by for claim in claims} >= {"table1", "table2", "table3", "table5", "table6", "fig2", "fig4"}
    assert len({claim.name for claim in claims}) == len(claims)
