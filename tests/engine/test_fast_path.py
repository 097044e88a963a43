"""Runs with the folded copy of custom networks: messages, and checks that change no bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.calls import call, missing_facts, refused
from tests.support.runs import CPU, TINY, assert_same, begin, finished, splits, tiny, unbroken
from uiat.config import AnyConfig
from uiat.config_json import from_json, to_json
from uiat.engine import loop
from uiat.engine.setup import build_state
from uiat.errors import UserError
from uiat.methods import METHODS
from uiat.models import Imported
from uiat.models.fast import keeps_channels_last
from uiat.models.folding import AcceleratedCopy
from uiat.models.probe import trial_batch
from uiat.objectives.terms import HelperCrossEntropy
from uiat.runs.run_folder import RunFolder

LAYOUT = "it cannot be trained in channels_last"
UNFOLDED = "no BatchNorm in it can be folded"
DROPPED = "its folded copy no longer follows it"


def own(name: str, **changes: Any) -> AnyConfig:
    """Return a run of one of the custom networks."""
    return replace(tiny("uiat", **changes), model=Imported(f"tests.support.networks:{name}"))


def said(run: RunFolder) -> list[str]:
    """Return the messages in a run's log, each as often as it occurs."""
    log = run.log.read_text()
    return [message for message in (LAYOUT, UNFOLDED, DROPPED) for _ in range(log.count(message))]


EXPECTED: dict[str, tuple[list[str], int]] = {
    "LeNet": ([LAYOUT, UNFOLDED], 0),
    "NormedLeNet": ([LAYOUT], 2),
    "Volumes": ([], 1),
    "GlobalContext": ([], 1),
    "Rolls": ([UNFOLDED], 0),
    "Ramps": ([LAYOUT, DROPPED], 2),
}
"""What a run of a network says, and how many BatchNorms an evaluation folds."""


@pytest.mark.parametrize("name", EXPECTED)
def test_a_run_of_an_ordinary_network(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages, folds = EXPECTED[name]
    run = begin(own(name, epochs=1), tmp_path / "run")
    assert said(run) == messages
    named = ("--model", f"tests.support.networks:{name}")
    found = call(capsys, "evaluate", str(run.path), *named, "--n", "8", "--device", "cpu")
    assert found.code == 0, found.err
    layout = "its own memory layout" if LAYOUT in messages else "channels_last"
    assert f"network: {named[1]}; {layout}, {folds} BatchNorms folded" in found.err


def test_checking_again_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = unbroken(tiny("uiat"))
    assert said(finished(tiny("uiat"))) == [], "a bundled network has no message"
    monkeypatch.setattr(loop, "folded_copy_is_valid", lambda state, data: True)
    assert_same(begin(tiny("uiat"), tmp_path / "not"), checked)


def test_compile_without_the_fast_path_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("digits-resnet8-sat", *TINY, "--train.no-fast", "--compile", "--out", str(tmp_path / "run"))
    assert missing_facts(refused(capsys, "train", *flags), "train.compile train.fast --compile") == []
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=r"compile .*train\.fast"):
        build_state(tiny("uiat", fast=False, compile=True), splits().spec, CPU, None)


def helper_of(config: AnyConfig) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Return the helper that was passed in, and the one that the method uses."""
    spec = splits().spec
    given = config.model.build(spec).requires_grad_(False)
    state = build_state(config, spec, CPU, given)
    assert state.fast is not None
    assert (state.fast.folds > 0) == config.train.fast
    (used,) = (t.term.helper for t in state.method.terms if isinstance(t.term, HelperCrossEntropy))
    return given, used


def test_the_helper_of_hat_is_folded_once() -> None:
    torch.manual_seed(0)
    config = replace(tiny("uiat"), method=METHODS["hat"])
    given, used = helper_of(config)
    assert isinstance(used, AcceleratedCopy)
    assert keeps_channels_last(used)
    x = trial_batch(splits().spec, CPU)
    torch.testing.assert_close(used(x), given.eval()(x), rtol=1e-4, atol=1e-4)
    given, used = helper_of(replace(config, train=replace(config.train, fast=False)))
    assert used is given


@pytest.mark.parametrize("layout", [None, True, False])
@pytest.mark.parametrize("fast", [True, False])
def test_folding_and_the_memory_layout_are_two_switches(fast: bool, layout: bool | None) -> None:
    """The network, its folded copy and HAT's helper; without `channels_last`, the layout follows `fast`."""
    plan = replace(tiny("uiat").train, fast=fast, channels_last=layout)
    config = replace(tiny("uiat"), method=METHODS["hat"], train=plan)
    last = fast if layout is None else layout
    given, used = helper_of(config)
    state = build_state(config, splits().spec, CPU, given)
    assert state.fast is not None
    assert [keeps_channels_last(network) for network in (state.model, *state.fast.networks, used)] == [last] * (
        3 + fast
    )
    assert isinstance(used, AcceleratedCopy) == (state.fast.folds > 0) == fast


def test_the_layout_is_part_of_the_configuration_and_not_of_old_keys() -> None:
    plain = tiny("uiat")
    other = replace(plain, train=replace(plain.train, channels_last=False))
    assert "channels_last" not in to_json(plain, key=True)["train"]
    assert to_json(other, key=True)["train"]["channels_last"] is False
    assert from_json(to_json(other)) == other


def test_the_layout_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("digits-resnet8-sat", *TINY, "--train.epochs", "1", "--train.channels-last", "False")
    found = call(capsys, "train", *flags, "--out", str(tmp_path / "run"))
    assert found.code == 0, found.err
    assert RunFolder(tmp_path / "run").read_config().train.channels_last is False
    assert said(RunFolder(tmp_path / "run")) == []
