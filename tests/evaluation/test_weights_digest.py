"""An evaluation belongs to the weights it was measured on: no command shows it for other weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.calls import Call, call
from tests.support.moments import STEP, Killed, at_call, die
from tests.support.runs import STEPS, begin, resume_run, tiny
from uiat.evaluation.subject import Subject, load_subject
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import Attacked
from uiat.runs.run_folder import RunFolder, read_json
from uiat.runs.weights import DIGEST, file_digest, read_weights, weights_digest


def evaluate(capsys: pytest.CaptureFixture[str], run: RunFolder, *more: str) -> Call:
    return call(capsys, "evaluate", str(run.path), "--device", "cpu", "--attacks", "natural", "fgsm", *more)


def change(file: Path) -> None:
    """Write other weights."""
    save_file({name: tensor + 1 for name, tensor in load_file(file).items()}, file)


def strip(run: RunFolder) -> None:
    """Convert the entries to those of an earlier version."""
    card = read_json(run.result)
    for entry in card["evaluations"]:
        del entry[DIGEST]
    run.result.write_text(json.dumps(card), encoding="utf-8")


def test_a_training_that_resumed_drops_what_was_measured_on_weights_that_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder.create(tmp_path / "run", tiny("natural"))
    with at_call(STEP, STEPS + 2, die), pytest.raises(Killed):
        resume_run(run)
    assert evaluate(capsys, run).code == evaluate(capsys, run, "--weights", "last").code == 0
    before = {file.name: file_digest(file) for file in (run.best, run.last)}
    entries = run.read_card()["evaluations"]
    assert [entry[DIGEST] for entry in entries] == [before[entry["weights"]] for entry in entries]
    assert resume_run(run)
    after = {file.name: file_digest(file) for file in (run.best, run.last)}
    assert after["last.safetensors"] != before["last.safetensors"]
    kept = [entry for entry in entries if before[entry["weights"]] == after[entry["weights"]]]
    assert run.read_card()["evaluations"] == kept


def test_a_new_evaluation_removes_those_of_other_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = begin(tiny("natural"), tmp_path / "run")
    assert evaluate(capsys, run).code == evaluate(capsys, run, "--weights", "last").code == 0
    change(run.best)
    found = call(capsys, "evaluate", str(run.path), "--device", "cpu", "--attacks", "natural")
    assert found.code == 0
    entries = [(entry["weights"], entry["attack"]) for entry in run.read_card()["evaluations"]]
    assert entries == [("last.safetensors", "natural"), ("last.safetensors", "fgsm"), ("best.safetensors", "natural")]


def readers(capsys: pytest.CaptureFixture[str], run: RunFolder) -> dict[str, tuple[str, Any]]:
    """Return what each command shows of a run's evaluations: its output, and the accuracies."""
    out = run.path.with_name("export")
    exported = call(capsys, "export", str(run.path), "--out", str(out))
    card = json.loads((out / "card.json").read_text(encoding="utf-8"))
    compared = call(capsys, "compare", str(run.path), "--markdown")
    page = run.path.with_name("page.html")
    report = call(capsys, "report", str(run.path), "--out", str(page), "--device", "cpu", "--n", "8")
    assert exported.code == compared.code == report.code == 0
    readme, html = (path.read_text(encoding="utf-8") for path in (out / "README.md", page))
    return {
        "export": (exported.err, [entry["accuracy"] for entry in card["evaluations"]]),
        "readme": (exported.err, [line for line in readme.splitlines() if line.startswith("| natural")]),
        "compare": (compared.out, [line for line in compared.out.splitlines() if "%" in line and " [" in line]),
        "report": (html, ["measured"] if "keeps an accuracy of" in html else []),
    }


def test_no_command_repeats_what_other_weights_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = begin(tiny("natural"), tmp_path / "run")
    assert evaluate(capsys, run).code == 0
    for name, (shown, accuracies) in readers(capsys, run).items():
        assert accuracies or name == "compare", name
        assert [part for part in ("no digest", "no longer has") if part in shown] == [], name
    strip(run)
    for name, (shown, accuracies) in readers(capsys, run).items():
        assert accuracies or name == "compare", name
        assert shown.count("has no digest of its weights") == 1, name
    assert evaluate(capsys, run).code == 0
    change(run.best)
    for name, (shown, accuracies) in readers(capsys, run).items():
        assert accuracies == [], name
        assert "2 result(s) of weights that the run no longer has" in shown, name


def test_a_report_measures_a_curve_of_other_weights_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = begin(tiny("natural"), tmp_path / "run")
    assert call(capsys, "curves", str(run.path), "--device", "cpu", "--grid", "0", "0.1").code == 0
    page = tmp_path / "page.html"
    sources = []
    for _ in range(2):
        assert call(capsys, "report", str(run.path), "--out", str(page), "--device", "cpu", "--n", "8").code == 0
        sources.append("from `uiat curves`" in page.read_text(encoding="utf-8"))
        change(run.best)
    assert sources == [True, False]


def test_a_measurement_of_reproduce_belongs_to_its_weights(tmp_path: Path) -> None:
    measure = Attacked("natural")
    store = Store(Cell(tiny("natural"), (measure,)), tmp_path)
    begin(store.cell.config, store.path)
    ready = load_subject(store.path, Subject(store.cell.config.data, store.cell.config.model, device="cpu"))
    store.measures.mkdir()
    for facts, there in (({DIGEST: ready.digest}, True), ({}, True), ({DIGEST: "of others"}, False)):
        store.keep(measure, (facts, {"correct": torch.ones(2)}))
        assert store.has(measure) == store.finished == there
    for file in store.path.glob("*.safetensors"):  # a published run has no weights to compare with
        file.unlink()
    assert store.has(measure)


def test_the_digest_is_of_the_values_not_of_the_file(tmp_path: Path) -> None:
    tensors = {"b": torch.rand(3, 4, 5, 5), "a": torch.zeros((), dtype=torch.bfloat16)}
    digest = weights_digest(tensors)
    moved = {"a": tensors["a"], "b": tensors["b"].to(memory_format=torch.channels_last)}
    save_file({name: tensor.contiguous() for name, tensor in moved.items()}, tmp_path / "x.safetensors", {"x": "y"})
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in moved.items()}}, tmp_path / "x.pt")
    for file in ("x.safetensors", "x.pt"):
        assert file_digest(tmp_path / file) == weights_digest(read_weights(tmp_path / file)) == digest
    assert weights_digest({**tensors, "bn.num_batches_tracked": torch.tensor(3)}) == digest
    others = [
        {**tensors, "a": tensors["a"] + 1},
        {**tensors, "a": tensors["a"].float()},
        {**tensors, "b": tensors["b"].reshape(4, 3, 5, 5)},
        {"a": tensors["a"], "c": tensors["b"]},
    ]
    assert len({digest, *map(weights_digest, others)}) == 5
