"""The files of a run folder, and their content."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support.runs import CPU, STEPS, begin, load_checkpoint, resume_run, snapshot, splits, tiny
from uiat.cli import main
from uiat.engine import loop
from uiat.engine.setup import build_model
from uiat.engine.state import State
from uiat.evaluation.suite import accuracy
from uiat.recipes.small import DIGITS_TUNED
from uiat.rng import derive
from uiat.runs.run_folder import RunFolder, read_json
from uiat.runs.weights import load_weights

FILES = {"best.safetensors", "checkpoint.pt", "checkpoint.previous.pt", "config.json", "last.safetensors"}
RECORDS = {"log.txt", "metrics.jsonl", "result.json"}
EPOCHS = 4
CONFIG = tiny("uiat", epochs=EPOCHS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return begin(CONFIG, tmp_path_factory.mktemp("runs") / "run")


def lines(run: RunFolder, kind: str) -> list[dict[str, Any]]:
    return [line for line in run.read_metrics() if line["kind"] == kind]


def test_every_file_is_there(run: RunFolder) -> None:
    names = {path.name for path in run.path.iterdir()}
    tables = {torch.load(path, weights_only=True)["table_file"] for path in (run.checkpoint, run.previous)}
    assert names == {*FILES, *RECORDS, "lock", *tables}


def test_the_configuration_is_the_runs(run: RunFolder) -> None:
    assert RunFolder.open(run.path).read_config() == CONFIG


def test_the_checkpoint_holds_everything(run: RunFolder) -> None:
    saved = load_checkpoint(run)  # weights_only=True
    assert (saved["epoch"], saved["step"]) == (EPOCHS + 1, 0)
    model = build_model(CONFIG, splits().spec, CPU)
    assert saved["model"].keys() == model.state_dict().keys()
    assert saved["method"].keys() == {"target.inner.z"}
    buffers = [entry["momentum_buffer"] for entry in saved["optimizer"]["state"].values()]
    assert [b.shape for b in buffers] == [p.shape for p in model.parameters()]
    table = load_file(run.path / saved["table_file"])
    assert table["target.table.seen"].all()
    assert table["target.table.log_p"].exp().sum(dim=1).numpy() == pytest.approx(1, abs=1e-5)


def test_metrics_have_a_line_an_epoch_and_every_third_step(run: RunFolder) -> None:
    epochs, steps = lines(run, "epoch"), lines(run, "step")
    assert [line["epoch"] for line in epochs] == list(range(1, EPOCHS + 1))
    assert len(epochs) + len(steps) == len(run.read_metrics())
    places = [(line["epoch"] - 1) * STEPS + line["step"] for line in steps]
    assert places == list(range(3, EPOCHS * STEPS + 1, 3))
    assert [line["lr"] for line in steps] == [CONFIG.train.schedule.at(p - 1, EPOCHS * STEPS) for p in places]
    for line in epochs:
        kl = DIGITS_TUNED["uiat"]["lam"] * line["loss_kl"]
        assert line["loss"] == pytest.approx(line["loss_ce"] + kl, rel=1e-5)
        assert {"train_accuracy", "val_natural", "val_robust", "seconds"} <= line.keys()


def test_no_step_lines_when_not_asked_for(tmp_path: Path) -> None:
    run = begin(tiny("natural", log_every=0), tmp_path / "run")
    assert {line["kind"] for line in run.read_metrics()} == {"epoch"}


@pytest.mark.parametrize(("method", "select"), [("uiat", "val_robust"), ("natural", "val_natural")])
def test_the_best_weights_are_those_of_the_best_epoch(
    method: str, select: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    validate = loop._validate

    def watched(config: Any, state: State, *rest: Any) -> Any:
        seen.append({name: value.clone() for name, value in state.model.state_dict().items()})
        return validate(config, state, *rest)

    monkeypatch.setattr(loop, "_validate", watched)
    run = begin(tiny(method, epochs=EPOCHS), tmp_path / "run")
    epochs = lines(run, "epoch")
    best = max(epochs, key=lambda line: (line[select], -line["epoch"]))  # the first of equals
    card = read_json(run.result)
    assert card["best"] == {name: best[name] for name in ("epoch", "val_natural", "val_robust")}
    expected = seen[best["epoch"] - 1]
    assert all(torch.equal(value, expected[name]) for name, value in load_file(run.best).items())
    assert all(torch.equal(value, seen[-1][name]) for name, value in load_file(run.last).items())


def test_the_best_weights_measure_what_the_card_says(run: RunFolder) -> None:
    card, model = read_json(run.result), build_model(CONFIG, splits().spec, CPU)
    load_weights(model, run.best)
    attack, seed = CONFIG.validate.attack(CONFIG.method), derive(CONFIG.seed, "validation")
    for name, attacker in (("val_natural", None), ("val_robust", attack)):
        found = accuracy(model, splits().validation, attacker, batch_size=CONFIG.validate.batch_size, seed=seed)
        assert found.accuracy == card["best"][name]


def test_the_card(run: RunFolder) -> None:
    card = read_json(run.result)
    assert {**card["config"], "run_id": run.read_id()} == read_json(run.config)
    assert card["data"]["name"] == "digits"
    assert (card["data"]["train"], card["data"]["validation"], card["data"]["test"]) == (60, 12, 40)
    assert card["data"]["classes"] == [str(k) for k in range(10)]
    assert card["parameters"] == sum(p.numel() for p in build_model(CONFIG, splits().spec, CPU).parameters())
    assert card["training_passes"] == {
        "forward": EPOCHS * 60 * 7,
        "input_backward": EPOCHS * 60 * 3,
        "weight_backward": EPOCHS * 60,
    }
    assert card["environment"]["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert card["environment"].keys() >= {"device", "threads", "git_commit"}
    assert card["evaluations"] == []


def test_a_finished_run_is_not_changed(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    def files() -> dict[str, bytes]:
        others = ("lock", "data.json")  # a run of a version without data.json gets one
        return {path.name: path.read_bytes() for path in run.path.iterdir() if path.name not in others}

    before = files()
    assert main(["train", "--resume", str(run.path)]) == 0
    assert "done" in capsys.readouterr().out
    assert files() == before


def test_an_evaluation_before_the_end_does_not_cost_the_card(tmp_path: Path) -> None:
    run = begin(tiny("natural"), tmp_path / "run")
    whole = snapshot(run)
    run.result.write_text(json.dumps({"schema": 1, "evaluations": [{"attack": "natural"}]}))
    assert resume_run(run)
    with run.changed_card() as card:
        assert card["evaluations"] == [{"attack": "natural"}]
        card["evaluations"].clear()
    assert snapshot(run) == whole
