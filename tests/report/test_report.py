"""`uiat report`: the page shows the networks' outputs, reports what is missing, and escapes names."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from tests.support.calls import call, refused
from tests.support.reports import (
    EVIL,
    EXAMPLES,
    FLAGS,
    copy_of,
    folder,
    frames,
    opened,
    paths,
    payload,
    probabilities,
    report,
    three_runs,
)
from uiat.evaluation.intervals import Paired
from uiat.report.page.comparison import Row, RunComparison, compare_runs
from uiat.report.page.frames import INVERSE_FRAMES, Frames, Walk, make_frames
from uiat.report.page.network_summary import NetworkSummarizer, NetworkSummary, SummaryOptions
from uiat.report.page.page import mistakes, render
from uiat.report.page.runs import read_runs
from uiat.report.page.story import caveats, details, headline, hero, opponent


def test_every_probability_is_that_of_the_picture_shown() -> None:
    data = payload(report())
    assert {run["name"] for run in data["runs"]} == {"natural", "uiat", EVIL}
    assert [run["label"] for run in data["runs"]][::2] == ["UIAT", "natural training"]
    for k, run in enumerate(data["runs"]):
        images = opened(folder(run["name"])).images
        for example, facts in enumerate(data["examples"]):
            pixels = frames(data, k, example)
            assert torch.equal(pixels[data["zero"]], images.x[facts["place"]])
            assert facts["y"] == int(images.y[facts["place"]])
            p = probabilities(folder(run["name"]), pixels)
            shown = torch.tensor(run["p"][example]) / 10_000
            assert torch.allclose(shown.double(), p[:, facts["shown"]], atol=1e-4)
            assert run["guess"][example] == p.argmax(dim=1).tolist()


def head(p: float, seed: int = 0, **robust: float) -> RunComparison:
    """A comparison of the three runs with these robust accuracies, and one paired difference of 3 points."""
    rows = {row.run.name: row for row in compare_runs(read_runs(paths())).rows}
    found: list[Row] = []
    for name, accuracy in robust.items():
        row = rows[name]
        assert row.robust is not None
        saved = {**row.run.saved, "seed": seed * len(found)}
        paired = Paired(-0.03, -0.05, 0.01, p) if found else None
        measured = replace(row.robust, accuracy=accuracy)
        found.append(replace(row, run=replace(row.run, saved=saved), robust=measured, paired=paired))
    return replace(compare_runs([row.run for row in found]), rows=tuple(found))


def test_the_head_compares_robust_with_natural_training_and_says_what_one_seed_can_say() -> None:
    found = head(0.2, uiat=0.83, sat=0.8, natural=0.01)
    assert headline(found).endswith("adversarial training keeps an accuracy of 80–83 %, natural training 1 %.")
    without, difference = details(found)
    assert without.count(" %") == 3
    assert difference.startswith("UIAT and SAT differ by 3.0 points (95 % CI [−1.0, +5.0], p = 0.200)")
    assert difference.endswith("no significant difference, on one seed.")
    assert any("One seed" in line for line in caveats(found))
    found = head(0.01, seed=1, uiat=0.83, sat=0.8)
    assert headline(found).endswith("UIAT keeps an accuracy of 83 %.")
    assert details(found)[1].endswith("significant for these two networks.")
    assert not any("One seed" in line for line in caveats(found))
    assert headline(head(0.01, uiat=0.5, natural=0.2)).endswith(
        "UIAT keeps an accuracy of 50 %, natural training 20 %."
    )
    assert len(details(head(0.01, natural=0.2, uiat=0.1))) == 1
    assert headline(head(0.01, natural=0.2)).endswith("natural training keeps an accuracy of 20 %.")
    assert "No robust accuracy" in headline(replace(found, rows=(replace(found.rows[0], robust=None),)))


def test_the_first_picture_tells_robust_and_natural_training_apart() -> None:
    """Three networks, four images of class 0; a word has the predictions from −ε, 0, ε and 2ε on."""
    runs = read_runs([paths()[k] for k in (2, 1, 0)])
    guesses = [["0000", "0000", "0111", "0001"], ["0000", "0000", "0111", "0000"], ["0011", "0000", "0011", "0011"]]
    shown = []
    for run, guess in zip(runs, guesses, strict=True):
        steps = torch.tensor([[int(letter) for letter in word for _ in range(INVERSE_FRAMES)] for word in guess])
        frames = Frames((), torch.empty(0), torch.full((4, steps.shape[1], 2), 0.5), steps)
        shown.append(cast(NetworkSummary, SimpleNamespace(run=run, frames=frames)))
    assert opponent(shown) == 2
    assert opponent(shown[:2]) == 1
    assert hero(shown, [0, 0, 0, 0]) == 3


def test_frames_stay_in_their_ball_and_keep_their_promise() -> None:
    data = payload(report())
    for k in range(3):
        for example, facts in enumerate(data["examples"]):
            pixels = frames(data, k, example).int()
            change = (pixels - pixels[data["zero"]]).abs().flatten(1).amax(dim=1)
            assert (change <= 255 * torch.tensor(data["grid"]).abs() + 1e-2).all()
            own = torch.tensor(data["runs"][k]["p"][example])[:, facts["shown"].index(facts["y"])]
            assert (own[:-1] >= own[1:] - 1).all(), "p of the true class falls from inverse to adversarial"


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_equation_4_and_l2(norm: str) -> None:
    ready = opened(three_runs() / "uiat")
    images = ready.images.part(0, 4)
    eps = 0.2 if norm == "linf" else 1.0
    plain = make_frames(ready.model, ready.fast, images, Walk(eps, norm), ready.device)
    eq4 = make_frames(ready.model, ready.fast, images, Walk(eps, norm, beta=1.0), ready.device)
    assert torch.equal(plain.pixels[:, INVERSE_FRAMES:], eq4.pixels[:, INVERSE_FRAMES:])
    assert not torch.equal(plain.pixels, eq4.pixels)
    if norm == "l2":
        lengths = (plain.pixels.int() - images.x[:, None].int()).double().flatten(2).norm(dim=2) / 255
        assert (lengths <= torch.tensor(plain.grid).abs() + 1e-3).all()


def test_examples_come_from_all_classes_and_both_halves() -> None:
    summarizer = NetworkSummarizer(SummaryOptions(n=100, examples=20, device="cpu"))
    run = read_runs([paths()[2]])[0]
    ready = summarizer.open(run)
    places, easier = summarizer.choose_examples(ready)
    assert len(places.unique()) == 20
    assert (ready.images.y[places].bincount(minlength=10) >= 1).all()
    assert 5 <= int(easier.sum()) <= 15


def test_by_class_and_confusion_agree() -> None:
    summarizer = NetworkSummarizer(SummaryOptions(n=60, examples=2, attack="pgd-5", device="cpu"))
    run = read_runs([paths()[1]])[0]
    ready = summarizer.open(run)
    look = summarizer.summarize(run, ready, summarizer.choose_examples(ready)[0])
    assert int(look.natural.sum()) == int(look.attacked.sum()) == 60
    with torch.no_grad():
        right = ready.model(ready.images.x / 255).argmax(dim=1) == ready.images.y
    assert int(look.natural.diag().sum()) == int(right.sum())
    at_eps = look.curve.accuracy["all"][look.curve.grid.index(look.eps)]
    assert int(look.attacked.diag().sum()) == round(60 * at_eps)
    assert sum(n for _, n, _, _ in look.by_class()) == 60
    assert all(count > 0 for _, _, count in mistakes(look.attacked, look.images.classes))


def test_names_are_text_and_nothing_is_loaded() -> None:
    text = report().read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert len(text.encode()) < 8e6


def test_a_class_that_closes_the_script_is_harmless(tmp_path: Path) -> None:
    found = compare_runs(read_runs([paths()[2]]))
    summarizer = NetworkSummarizer(SummaryOptions(n=20, examples=2, attack="pgd-2", device="cpu"))
    ready = summarizer.open(found.rows[0].run)
    classes = ("</script><script>alert(1)</script>", EVIL, *ready.images.classes[2:])
    ready = replace(ready, images=replace(ready.images, classes=classes))
    places, easier = summarizer.choose_examples(ready)
    look = summarizer.summarize(found.rows[0].run, ready, places)
    text = render(found, [look], places, easier, summarizer.options, reason="")
    assert text.count("<script") == 2
    assert "<script>alert" not in text
    assert EVIL not in text
    out = tmp_path / "page.html"
    out.write_text(text, encoding="utf-8")
    assert payload(out)["classes"] == [*classes, "NaN"]


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare, going, empty = tmp_path / "bare", tmp_path / "going", tmp_path / "empty"
    for path in (bare, going, empty):
        copy_of("uiat", path)
        (path / "lock").unlink()
    card = json.loads((bare / "result.json").read_text())
    (bare / "result.json").write_text(json.dumps({**card, "evaluations": []}))
    (going / "result.json").unlink()
    for name in ("result.json", "metrics.jsonl", "best.safetensors", "last.safetensors"):
        (empty / name).unlink()
    out = str(tmp_path / "page.html")
    facts = {
        bare: ("No robust accuracy has been measured", "not evaluated"),
        going: ("not finished: 4 of 4 epochs", "not evaluated"),
        empty: ("no epoch has finished yet", "there are no curves", "not finished: 0 of 4 epochs"),
    }
    for path, parts in facts.items():
        found = call(capsys, "report", str(path), *FLAGS, "-o", out)
        assert found.code == 0, found.err
        text = Path(out).read_text(encoding="utf-8")
        assert all(part in text for part in parts), path
    assert call(capsys, "report", *paths(), "--pictures", "0", "-o", out).code == 0
    assert "--pictures 0" in Path(out).read_text(encoding="utf-8")


def test_a_kept_curve_is_used_and_other_data_is_set_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, other = copy_of("sat", tmp_path / "kept"), copy_of("natural", tmp_path / "other")
    assert call(capsys, "curves", str(kept), "--n", "40", "--attack", "pgd-5").code == 0
    data = json.loads((other / "data.json").read_text())
    (other / "data.json").write_text(json.dumps({**data, "test": {"images": 120, "digest": "another"}}))
    out = tmp_path / "page.html"
    found = call(capsys, "report", str(kept), paths()[2], str(other), *FLAGS, "-o", str(out))
    assert found.code == 0, found.err
    text = out.read_text(encoding="utf-8")
    assert "kept (SAT): 40 images, from `uiat curves`" in text
    assert "other data than most (digits): not comparable" in text
    assert "Without pictures: other (natural training)." in text
    curve = json.loads((kept / "curves" / "curves.json").read_text())
    shown = next(run for run in payload(out)["runs"] if run["name"] == "kept")["curve"]
    assert shown["all"] == curve["accuracy"]["all"]
    assert len(payload(out)["examples"]) == EXAMPLES


@pytest.mark.parametrize("damaged", [False, True], ids=["one", "damaged"])
def test_a_kept_curve_of_one_radius(damaged: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, out = copy_of("sat", tmp_path / "kept"), tmp_path / "page.html"
    assert call(capsys, "curves", str(kept), "--n", "40", "--attack", "pgd-5", "--grid", "0.1").code == 0
    if damaged:
        file = kept / "curves" / "curves.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "grid": []}))
    found = call(capsys, "report", str(kept), *FLAGS, "-o", str(out))
    assert found.code == 0, found.err
    curve = payload(out)["runs"][0]["curve"]
    assert len(curve["grid"]) == len(curve["all"])
    assert (curve["grid"] == [0.1]) is not damaged
    ends = re.search(r'data-ends="(\S+) (\S+)', out.read_text(encoding="utf-8").partition('id="curve"')[2])
    assert ends is not None
    assert float(ends[1]) < 0.1 < float(ends[2])


def test_errors_are_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "a.html")
    assert "needs run folders" in refused(capsys, "report")
    assert "has no run" in refused(capsys, "report", str(tmp_path), "-o", out)
    assert "--examples is 0" in refused(capsys, "report", *paths(), "--examples", "0", "-o", out)
    assert str(tmp_path / "no") in refused(capsys, "report", *paths(), "-o", str(tmp_path / "no" / "a.html"))
    assert not Path(out).exists()
