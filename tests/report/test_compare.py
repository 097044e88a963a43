"""`uiat compare`: the numbers of the cards, the ranking, paired tests, settings, and what is missing."""

import csv
import io
import json
import os
import platform
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chi2

from tests.support.calls import call, refused
from tests.support.reports import METHODS, copy_of, paths, three_runs
from uiat.evaluation.evaluation_result import pack_verdicts, unpack_verdicts
from uiat.evaluation.intervals import compare_verdicts, paired, wilson
from uiat.report.comparison_table import group_seeds, p_value
from uiat.report.page.comparison import compare_runs, show_p, strength
from uiat.report.page.runs import read_runs
from uiat.runs.weights import DIGEST, file_digest


def entry(method: str, attack: str) -> dict[str, Any]:
    card = json.loads((three_runs() / method / "result.json").read_text(encoding="utf-8"))
    (found,) = [e for e in card["evaluations"] if e["attack"] == attack]
    return dict(found)


def test_the_table_fits_100_columns_and_agrees_with_the_cards(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    found = call(capsys, "compare", *paths())
    assert found.code == 0
    *table, after = found.out.splitlines()
    assert max(map(len, table)) <= 100
    assert after.startswith("done; next: uiat report ")
    for method in METHODS:
        (line,) = [row for row in found.out.splitlines() if row.startswith(f"{method} ") and "[" in row]
        for attack in ("natural", "pgd-20"):
            card = entry(method, attack)
            low, high = card["interval95"]
            assert f"{100 * card['accuracy']:.2f} [{100 * low:.1f}–{100 * high:.1f}]" in line
    assert "method.lam" not in found.out  # only UIAT has it
    assert "train.select" in found.out


def test_rows_are_sorted_and_csv_has_every_digit(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(call(capsys, "compare", *paths(), "--csv").out)))
    robust = [float(row["robust"]) for row in rows]
    assert robust == sorted(robust, reverse=True)
    for row in rows:
        for kind, attack in (("natural", "natural"), ("robust", "pgd-20")):
            card = entry(row["run"], attack)
            assert float(row[kind]) == card["accuracy"]
            assert [float(row[f"{kind}_low"]), float(row[f"{kind}_high"])] == card["interval95"]
            assert int(row[f"{kind}_n"]) == card["n"]
        card = json.loads((three_runs() / row["run"] / "result.json").read_text(encoding="utf-8"))
        assert float(row["seconds"]) == card["training_seconds"]
        assert int(row["passes"]) == sum(card["training_passes"].values())
    assert rows[0]["mcnemar_p"] == ""


def test_the_paired_test_is_mcnemars(capsys: pytest.CaptureFixture[str]) -> None:
    rows = compare_runs(read_runs(paths())).rows
    first, last = rows[0].robust, rows[-1].robust
    assert first is not None
    assert last is not None
    assert first.verdicts is not None
    assert last.verdicts is not None
    assert float(first.verdicts.double().mean()) == first.accuracy
    gained, lost = int((last.verdicts & ~first.verdicts).sum()), int((first.verdicts & ~last.verdicts).sum())
    pair = rows[-1].paired
    assert pair is not None
    assert pair.difference == pytest.approx(last.accuracy - first.accuracy)
    assert pair.p == pytest.approx(chi2.sf((gained - lost) ** 2 / (gained + lost), 1))
    assert pair.low < pair.difference < pair.high


@given(both=st.integers(0, 400), gained=st.integers(0, 60), lost=st.integers(0, 60), neither=st.integers(0, 400))
def test_interval_and_p_never_contradict_each_other(both: int, gained: int, lost: int, neither: int) -> None:
    """Under the bootstrap and the exact test, −2.79 [−5.5, −0.1] had p = 0.076."""
    assume(both + gained + lost + neither)
    first = torch.tensor([True] * (both + gained) + [False] * (lost + neither))
    second = torch.tensor([True] * both + [False] * gained + [True] * lost + [False] * neither)
    pair, swapped = compare_verdicts(first, second), compare_verdicts(second, first)
    assert -1 <= pair.low <= pair.difference <= pair.high <= 1
    assume(abs(pair.p - 0.05) > 1e-9)
    assert (pair.low > 0 or pair.high < 0) == (pair.p < 0.05)
    assert (swapped.low, swapped.high) == pytest.approx((-pair.high, -pair.low), abs=1e-12)


def test_the_interval_is_tangos() -> None:
    """His example: 44 pairs of which one is discordant (Statistics in Medicine, 1998)."""
    first, second = torch.ones(44, dtype=torch.bool), torch.ones(44, dtype=torch.bool)
    second[0] = False
    pair = compare_verdicts(first, second)
    assert (pair.low, pair.high) == pytest.approx((-0.0600, 0.1184), abs=2e-3)


def test_markdown_has_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    lines = call(capsys, "compare", *paths(), "--markdown").out.splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:5]] == [
        row.run.name for row in compare_runs(read_runs(paths())).rows
    ]
    assert "robust: pgd-20, ε = 0.2" in lines


def test_verdicts_survive_a_round_trip() -> None:
    for n in (1, 7, 8, 9, 120):
        correct = torch.arange(n) % 3 == 0
        found = unpack_verdicts(pack_verdicts(correct), n)
        assert found is not None
        assert torch.equal(found, correct)
    assert unpack_verdicts("zz", 4) is None
    assert unpack_verdicts(pack_verdicts(torch.ones(9, dtype=torch.bool)), 40) is None
    same = torch.ones(5, dtype=torch.bool)
    assert compare_verdicts(same, same).p == 1.0


def test_attacks_have_an_order() -> None:
    names = ["natural", "fgsm", "pgd-10", "pgd-20", "pgd-50-10", "cw", "apgd-ce", "autoattack"]
    assert sorted(names, key=strength) == names


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare, going, other = (copy_of("sat", tmp_path / name) for name in ("bare", "going", "other"))
    card = json.loads((bare / "result.json").read_text())
    (bare / "result.json").write_text(json.dumps({**card, "evaluations": []}))
    (going / "result.json").unlink()
    (going / "lock").write_text(f"process {os.getpid()} on {platform.node()}")  # text alone is no lock
    (going / "metrics.jsonl").write_text((going / "metrics.jsonl").read_text()[:-40])  # a line half written
    data = json.loads((other / "data.json").read_text())
    (other / "data.json").write_text(json.dumps({**data, "test": {"images": 120, "digest": "another"}}))
    out = call(capsys, "compare", *paths(), str(bare), str(going), str(other)).out
    assert "note: bare: not evaluated" in out
    assert "note: going: not finished: 3 of 4 epochs" in out
    assert "note: other: other data than most (digits): not comparable" in out
    assert "note: other: evaluated on other images" in out


def test_old_cards_have_no_paired_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = copy_of("uiat", tmp_path / "old")
    card = json.loads((old / "result.json").read_text())
    for each in card["evaluations"]:
        del each["verdicts"]
    (old / "result.json").write_text(json.dumps(card))
    out = call(capsys, "compare", str(old), str(three_runs() / "natural"), str(three_runs() / "sat")).out
    assert "no verdicts" in out


def seeds_of(method: str, folder: Path, *seeds: int) -> list[str]:
    """Return copies of a run with other seeds, each with a few other verdicts."""
    paths = [copy_of(method, folder / f"{method}-s{seed}") for seed in seeds]
    for seed, path in zip(seeds, paths, strict=True):
        saved = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**saved, "seed": seed}))
        card = json.loads((path / "result.json").read_text())
        for each in card["evaluations"]:
            correct = unpack_verdicts(each["verdicts"], each["n"])
            assert correct is not None
            correct[7 * seed : 7 * seed + 2 * seed] = False
            each |= {"verdicts": pack_verdicts(correct), "accuracy": float(correct.double().mean())}
            each["interval95"] = wilson(int(correct.sum()), each["n"])
        (path / "result.json").write_text(json.dumps({**card, "config": {**card["config"], "seed": seed}}))
    return [str(path) for path in paths]


def accuracies(paths: list[str]) -> list[float]:
    cards = [json.loads((Path(path) / "result.json").read_text()) for path in paths]
    return [100 * e["accuracy"] for card in cards for e in card["evaluations"] if e["attack"] == "pgd-20"]


def test_runs_that_differ_in_their_seed_are_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, others = seeds_of("sat", tmp_path, 0, 1, 2), seeds_of("uiat", tmp_path, 0, 2, 3)
    groups = group_seeds(compare_runs(read_runs([*others, *ours])))
    assert sorted(group.name for group in groups) == ["sat, 3 seeds", "uiat, 3 seeds"]
    out = call(capsys, "compare", *ours, *others).out
    for name, runs in (("sat", ours), ("uiat", others)):
        values = accuracies(runs)
        assert f"{mean(values):.2f} ± {stdev(values):.2f}" in next(
            line for line in out.splitlines() if line.startswith(f"{name}, 3 seeds ") and "±" in line
        )
    assert "sat-s2" in out.split("note: sat, 3 seeds")[1]
    assert "train.select" not in out or "seed " not in out.split("settings that differ")[1].splitlines()[1]
    best, second = groups
    verdicts: list[dict[int, Any]] = [
        {row.run.config.seed: row.robust.verdicts for row in group.rows if row.robust} for group in (second, best)
    ]
    both = sorted(verdicts[0].keys() & verdicts[1].keys())
    assert both == [0, 2]
    expected = paired(torch.stack([verdicts[0][seed].double() - verdicts[1][seed].double() for seed in both]))
    assert second.paired is not None
    assert (second.paired.difference, second.paired.low) == (expected.value, expected.low)
    assert (second.paired.p < 0.05) == (expected.low > 0 or expected.high < 0)
    markdown = call(capsys, "compare", *ours, *others, "--markdown").out
    assert sum(line.startswith(("| sat, 3 seeds |", "| uiat, 3 seeds |")) for line in markdown.splitlines()) == 2
    rows = list(csv.DictReader(io.StringIO(call(capsys, "compare", *ours, *others, "--csv").out)))
    assert len(rows) == 6


def test_a_row_of_seeds_beside_a_single_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = seeds_of("sat", tmp_path, 0, 1)
    out = call(capsys, "compare", *ours, *seeds_of("uiat", tmp_path, 4)).out
    assert "no seed in common" in out
    out = call(capsys, "compare", *ours, *seeds_of("natural", tmp_path, 1)).out
    assert "one seed in common" in out
    copies = group_seeds(compare_runs(read_runs([*ours, str(copy_of("sat", tmp_path / "copy"))])))
    assert sorted(len(group.rows) for group in copies) == [1, 2], "two runs of one seed are no sample"


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.05, 0.2])
def test_p_is_below_5_percent_where_the_interval_excludes_0(shift: float) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.rand(3, 300, generator=generator) < 0.5 + move for move in (shift, 0.0))
    found = paired(first.double() - second.double())
    p = p_value(found)
    assert 0 < p <= 1
    assert (p < 0.05) == (found.low > 0 or found.high < 0)
    low, high = found.interval(1 - p)
    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-6) or p == 1


def test_a_folder_of_reproduce_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("sat", "uiat"):
        run = copy_of(method, tmp_path / "out" / "runs" / method)
        card = json.loads((run / "result.json").read_text())
        (run / "result.json").write_text(json.dumps({**card, "evaluations": []}))
        (run / "measures").mkdir()
        for k, (weights, accuracy) in enumerate((("last", 0.5), ("best", 0.25))):
            facts = {"attack": "apgd-ce+apgd-t", "weights": weights, "split": "test", "accuracy": accuracy, "n": 120}
            file = run / "measures" / f"apgd-ce-apgd-t-{k}"
            file.with_suffix(".json").write_text(json.dumps({**facts, "eps": 0.2, "norm": "linf"}))
            unused = {**facts, "split": "unused", "n": 1000, "eps": 0.2, "norm": "linf"}
            file.with_name(f"unused-{k}.json").write_text(json.dumps(unused))
        (run / "measures" / "curve-pgd-20-0123abcd.json").write_text(json.dumps({"accuracy": {"all": []}}))
    for weights, hits in (("best", 30), ("last", 60)):
        flags = ("--attack", "apgd-ce+apgd-t", "--weights", weights)
        out = call(capsys, "compare", str(tmp_path / "out"), *flags).out
        low, high = wilson(hits, 120)
        assert out.count(f"{100 * hits / 120:.2f} [{100 * low:.1f}–{100 * high:.1f}]") == 2
    assert "weights of the last epoch" in " ".join(out.split())


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_two_batch_sizes_the_smaller_is_shown_whatever_the_files_are_called(names: str, tmp_path: Path) -> None:
    run = copy_of("sat", tmp_path / "sat")
    card = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**card, "evaluations": []}))
    (run / "measures").mkdir()
    for name, size, accuracy in zip(names, (64, 256), (0.25, 0.5), strict=True):
        facts = {"attack": "autoattack", "weights": "best", "split": "test", "accuracy": accuracy, "n": 120}
        facts |= {"eps": 0.2, "norm": "linf", "batch_size": size}
        (run / "measures" / f"autoattack-{name}.json").write_text(json.dumps(facts))
    (found,) = compare_runs(read_runs([str(run)])).rows
    assert found.robust is not None
    assert found.robust.accuracy == 0.25


def test_runs_that_were_measured_at_their_last_epoch_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are compared with each other; next to a run measured at its best epoch, a note names the flag."""
    copies = [copy_of(method, tmp_path / method) for method in ("sat", "uiat")]
    for path in copies:
        card = json.loads((path / "result.json").read_text())
        for each in card["evaluations"]:
            each |= {"weights": "last.safetensors", DIGEST: file_digest(path / "last.safetensors")}
        (path / "result.json").write_text(json.dumps(card))
    out = call(capsys, "compare", *map(str, copies)).out
    assert "not evaluated" not in out
    assert f"{100 * entry('sat', 'pgd-20')['accuracy']:.2f}" in out
    out = call(capsys, "compare", str(three_runs() / "natural"), str(copies[0])).out
    assert "note: sat: evaluated with the weights of the last epoch alone: see `uiat compare --weights last`" in out
    assert "sat: not evaluated" not in out


def test_errors_are_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "needs run folders" in refused(capsys, "compare")
    assert "has no run" in refused(capsys, "compare", str(tmp_path))
    assert "with 'cw'" in refused(capsys, "compare", *paths(), "--attack", "cw")
    assert "--csv and --markdown" in refused(capsys, "compare", *paths(), "--csv", "--markdown")


def test_runs_of_an_earlier_version_join_the_row_of_their_setting(tmp_path: Path) -> None:
    ours = seeds_of("sat", tmp_path, 0, 1)
    saved = json.loads((Path(ours[0]) / "config.json").read_text())
    del saved["train"]["optimizer"]
    (Path(ours[0]) / "config.json").write_text(json.dumps(saved))
    assert [len(group.rows) for group in group_seeds(compare_runs(read_runs(ours)))] == [2]


def test_a_p_value_below_the_level_does_not_show_as_the_level() -> None:
    assert [show_p(p) for p in (0.04986, 0.049999, 0.05, 0.0494, 0.0009, 0.3)] == [
        *("0.0499", "0.0499", "0.050", "0.049", "<0.001", "0.300")
    ]
