"""Averaged weights: their values, and that they are selected, saved, evaluated and resumed."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.engine.test_resume import stopped_and_resumed
from tests.support.calls import call
from tests.support.runs import (
    CPU,
    STEPS,
    assert_same,
    begin,
    finished,
    load_checkpoint,
    resume_run,
    splits,
    tiny,
    unbroken,
)
from uiat.averaging import AveragedWeights
from uiat.config import AnyConfig, Averaging
from uiat.engine.setup import build_model, build_state
from uiat.engine.step import train_step
from uiat.errors import UserError
from uiat.evaluation.suite import accuracy
from uiat.export.loaded_run import load_run
from uiat.methods import HAT
from uiat.rng import derive
from uiat.runs.run_folder import RunFolder, read_json
from uiat.types import Batch, Clock, DataSpec

ON = Averaging(enabled=True, decay=0.6)
"""A decay that the warm-up reaches: (1 + t)/(10 + t) passes 0.6 at t = 13."""
SPEC = DataSpec(num_classes=3, num_samples=12, shape=(1, 8, 8))


def averaged(method: str = "uiat", **changes: object) -> AnyConfig:
    return tiny(method, averaging=ON, checkpoint_minutes=0.0, **changes)


def twin(history: list[dict[str, Tensor]], decay: float) -> dict[str, Tensor]:
    """A literal moving average: one entry at a time, in double precision."""
    found = {name: tensor.double() for name, tensor in history[0].items()}
    for t, weights in enumerate(history[1:]):
        kept = decay if decay < (1 + t) / (10 + t) else (1 + t) / (10 + t)
        for name, tensor in weights.items():
            if name.endswith("num_batches_tracked"):
                found[name] = tensor.double()
            else:
                found[name] = found[name] * kept + tensor.double() * (1 - kept)
    return found


@pytest.mark.parametrize(("decay", "steps"), [(0.6, 20), (0.995, 20), (0.0, 3)])
def test_it_equals_a_literal_twin(decay: float, steps: int) -> None:
    config = replace(tiny("uiat"), train=replace(tiny("uiat").train, averaging=Averaging(True, decay)))
    state = build_state(config, SPEC, CPU, None)
    assert state.average is not None
    history = [{name: tensor.clone() for name, tensor in state.model.state_dict().items()}]
    draw = torch.Generator().manual_seed(0)
    for step in range(steps):
        x, y = torch.rand(12, *SPEC.shape, generator=draw), torch.arange(12) % 3
        train_step(state, Batch(x, y, torch.arange(12)), Clock(1, step, 3), lr=0.1)
        history.append({name: tensor.clone() for name, tensor in state.model.state_dict().items()})
    expected = twin(history, decay)
    assert state.average.weights.keys() == expected.keys()
    for name, tensor in state.average.weights.items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-6, atol=1e-6, msg=name)
    if decay:
        assert (state.average.weights["conv1.weight"] - history[-1]["conv1.weight"]).abs().max() > 1e-4
        assert (state.average.weights["bn1.running_var"] - history[-1]["bn1.running_var"]).abs().max() > 1e-4


def test_the_warm_up() -> None:
    average = AveragedWeights(nn.Linear(1, 1))
    assert not Averaging().enabled
    assert average.decay == Averaging().decay
    for updates, decay in ((0, 0.1), (1790, 0.995), (10**6, 0.995)):
        average.updates = updates
        assert average.next_decay == pytest.approx(decay)
    with pytest.raises(UserError, match=r"decay .* is 1\.5"):
        AveragedWeights(nn.Linear(1, 1), decay=1.5)


def test_another_network_is_refused() -> None:
    average = AveragedWeights(nn.Linear(1, 1))
    wrapped = nn.Sequential(nn.Linear(1, 1))
    for use in (
        lambda: average.update(wrapped),
        lambda: average.load_state_dict(AveragedWeights(wrapped).state_dict()),
    ):
        with pytest.raises(UserError, match=r"another network, which differs in '0\.bias'"):
            use()
    assert average.updates == 0


class Masked(nn.Module):
    """A network with a buffer of infinities and a counter."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        self.register_buffer("count", torch.tensor(0))


def test_other_buffers_are_copied() -> None:
    model = Masked()
    average = AveragedWeights(model)
    model.count += 3
    average.update(model)
    assert average.weights["count"] == 3
    assert average.weights["mask"].tolist() == [0.0, -torch.inf]


class Tied(nn.Module):
    """A weight under two names, and a BatchNorm under two."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.other.weight = self.one.weight
        self.norm = nn.BatchNorm1d(3)
        self.again = self.norm


def test_what_has_two_names_is_averaged_under_both() -> None:
    model = Tied()
    average = AveragedWeights(model, decay=0.9)
    average.updates = 10**6  # the warm-up is over
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert model.norm.running_mean is not None
    with torch.no_grad():
        model.one.weight.add_(1.0)
        model.norm.weight.add_(1.0)
        model.norm.running_mean.add_(1.0)
    average.update(model)
    with average.swapped_in(model):
        for name in ("one.weight", "other.weight", "norm.weight", "again.weight", "again.running_mean"):
            torch.testing.assert_close(model.state_dict()[name], before[name] + 0.1, msg=name)


def test_swapped_weights_are_restored_bit_by_bit() -> None:
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.BatchNorm1d(3))
    average = AveragedWeights(model, ON.decay)
    with torch.no_grad():
        layer.weight.add_(1 / 3)
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seen = []

    def fail() -> None:
        seen.append(layer.weight.detach().clone())
        raise KeyError

    with pytest.raises(KeyError), average.swapped_in(model):
        fail()
    assert torch.equal(seen[0], average.weights["0.weight"])
    assert all(torch.equal(tensor, own[name]) for name, tensor in model.state_dict().items())


def test_it_resumes_in_the_same_bits(tmp_path: Path) -> None:
    whole = unbroken(averaged())
    assert len([name for name in whole if name.startswith("/checkpoint/average/weights/")]) > 10
    assert_same(stopped_and_resumed(averaged(), tmp_path / "run", STEPS + 2, 2 * STEPS - 2), whole)


def test_it_does_not_affect_training() -> None:
    """The raw weights are those of a run without an average."""
    with_it, without = finished(averaged()), finished(tiny())
    assert not without.last_averaged.exists()
    ours, theirs = load_file(with_it.last), load_file(without.last)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    other = load_file(with_it.last_averaged)
    assert any(not torch.equal(ours[name], other[name]) for name in ours)
    passes = [load_checkpoint(run)["passes"] for run in (with_it, without)]
    assert passes[0] == passes[1]


def test_the_averaged_network_is_watched_selected_and_saved() -> None:
    config = averaged()
    run = finished(config)
    lines = run.read_metrics("epoch")
    best = max(lines, key=lambda line: float(line["val_robust"]))
    assert read_json(run.result)["best"]["epoch"] == best["epoch"]
    model = build_model(config, splits().spec, CPU)
    watch = config.validate.attack(config.method)
    for file, prefix in ((run.last_averaged, ""), (run.last, "raw_")):
        model.load_state_dict(load_file(file))
        seed = derive(config.seed, "validation")
        for name, attack in (("val_natural", None), ("val_robust", watch)):
            found = accuracy(model, splits().validation, attack, seed=seed).accuracy
            assert lines[-1][prefix + name] == found, (file.name, name)


def test_the_loop_saves_the_average_of_all_steps() -> None:
    run = finished(averaged())
    assert load_checkpoint(run)["average"]["updates"] == 3 * STEPS
    saved = load_checkpoint(run)["average"]["weights"]
    assert all(torch.equal(tensor, saved[name]) for name, tensor in load_file(run.last_averaged).items())


def test_evaluate_and_export_choose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder.open(shutil.copytree(finished(averaged()).path, tmp_path / "run"))
    files = {
        "best": run.best_averaged,
        "last": run.last_averaged,
        "best-raw": run.best,
        "last-raw": run.last,
    }
    for which, file in files.items():
        found = call(capsys, "evaluate", str(run.path), "--weights", which, "--attacks", "natural", "--n", "20")
        assert found.code == 0, found.err
        out = tmp_path / which
        assert call(capsys, "export", str(run.path), "--weights", which, "--out", str(out)).code == 0
        weights = load_file(file)
        exported = load_file(out / "model.safetensors")
        assert all(torch.equal(tensor, weights[name]) for name, tensor in exported.items()), which
        card = read_json(out / "card.json")["weights"]
        lines = {line["epoch"]: line for line in run.read_metrics() if line["kind"] == "epoch"}
        prefix = "raw_" if which.endswith("raw") else ""
        assert card["val_robust"] == lines[card["epoch"]][f"{prefix}val_robust"]
    evaluations = read_json(run.result)["evaluations"]
    assert [entry["weights"] for entry in evaluations] == [file.name for file in files.values()]
    assert call(capsys, "evaluate", str(run.path), "--n", "20", "--attacks", "natural").code == 0
    assert read_json(run.result)["evaluations"][-1]["weights"] == "best-averaged.safetensors"


def test_a_run_without_an_average_has_only_raw_weights() -> None:
    run = finished(tiny("natural"))
    assert run.weights("best") == run.weights("best-raw") == run.best
    assert run.weights("last") == run.weights("last-raw") == run.last
    assert load_run(run.path, "best-raw", None).epoch == load_run(run.path, "best", None).epoch


def test_hats_helper_is_plain(tmp_path: Path) -> None:
    run = begin(averaged("hat", epochs=1), tmp_path / "run")
    assert run.best_averaged.exists()
    helper = RunFolder.open(run.helper)
    assert not helper.best_averaged.exists()
    hat = tiny("hat", epochs=1)
    assert isinstance(hat.method, HAT)
    given = replace(hat, method=replace(hat.method, helper=str(finished(averaged()).path)))
    begin(given, tmp_path / "given")  # an averaged run is a helper, too


def test_a_checkpoint_without_an_average_is_not_resumed_with_one(tmp_path: Path) -> None:
    run = RunFolder.open(shutil.copytree(finished(tiny("natural")).path, tmp_path / "run"))
    text = run.config.read_text().replace('"enabled": false', '"enabled": true', 1)
    assert '"kind": "Averaging",\n      "enabled": true' in text
    run.config.write_text(text)
    with pytest.raises(UserError, match=r"train\.averaging\.enabled is False .* True "):
        resume_run(run)
