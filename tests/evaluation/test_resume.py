"""A killed evaluation resumes with its next batch and gives the result of an uninterrupted one."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.support.calls import call
from uiat.attacks import PGD
from uiat.data import Splits
from uiat.errors import UserError
from uiat.evaluation.ledger import Ledger, Stage
from uiat.evaluation.suite import run_suite

ATTACKS = ["natural", "pgd-3-2", "apgd-ce+square"]


class Killed(BaseException):
    """Simulates a killed process."""


def measure(model: nn.Module, digits: Splits, ledger: Ledger | None = None) -> dict[str, Tensor]:
    images = digits.test.take(torch.arange(32))
    found = run_suite(model, images, ATTACKS, PGD(eps=0.15, step=None), batch_size=16, seed=4, ledger=ledger, keep=True)
    kept = {f"{a.attack}/x_adv": a.x_adv for a in found.values() if a.x_adv is not None}
    return {**{a.attack: a.correct for a in found.values()}, **kept}


@pytest.mark.usefixtures("short_autoattack")
def test_killed_at_any_batch_it_ends_the_same(
    robust_run: Path,
    load: Callable[[Path], nn.Module],
    digits: Splits,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = load(robust_run)
    unbroken = measure(model, digits)
    path, save, saves = tmp_path / "ledger.safetensors", Ledger.save, 0

    def dying(ledger: Ledger) -> None:
        nonlocal saves
        saves += 1
        before = random.Random(saves).random() < 0.5
        if before:
            raise Killed  # the batch was attacked, but not recorded
        save(ledger)
        raise Killed

    deaths = 0
    monkeypatch.setattr(Ledger, "save", dying)
    while True:
        try:
            found = measure(model, digits, Ledger(path, "key"))
        except Killed:
            deaths += 1
            assert deaths < 200, "it makes no progress"
        else:
            break
    assert deaths >= 8
    assert found.keys() == unbroken.keys()
    for name, verdict in unbroken.items():
        assert torch.equal(found[name], verdict), name


def test_another_evaluation_or_a_damaged_ledger_is_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.safetensors"
    ledger = Ledger(path, "one")
    ledger.stages["pgd-3"] = Stage(torch.tensor([True, False]), torch.tensor([0]), component=1, after={"a": 0.5})
    ledger.save()
    again = Ledger(path, "one")
    assert again.resumed
    assert again.stages["pgd-3"].component == 1
    assert again.stages["pgd-3"].after == {"a": 0.5}
    assert not Ledger(path, "two").resumed
    whole = path.read_bytes()
    for place in (len(whole) - 1, whole.index(b'"component') + 16, len(whole) - 9):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not Ledger(path, "one").resumed, "a verdict must not change unseen"
    path.write_bytes(whole[:40])
    assert not Ledger(path, "one").resumed
    ledger.close()
    assert not path.exists()


def test_adversaries_are_appended_and_sealed(tmp_path: Path) -> None:
    path, rows = tmp_path / "ledger.safetensors", tmp_path / "ledger.adversaries"
    ledger, x = Ledger(path, "one"), torch.rand(4, 1, 2, 2)
    stage = ledger.stages["pgd-3"] = Stage(torch.ones(4, dtype=torch.bool), torch.arange(4))
    for members in (torch.tensor([2]), torch.tensor([], dtype=torch.long), torch.tensor([0, 3])):
        before = rows.read_bytes() if rows.exists() else b""
        stage.keep(members, x[members])
        ledger.save()
        after = rows.read_bytes() if rows.exists() else b""
        assert after.startswith(before)
        assert len(after) == len(before) + 16 * len(members)
    whole = rows.read_bytes()
    rows.write_bytes(whole + b"a batch that the verdicts do not know of")
    again = Ledger(path, "one")
    assert rows.read_bytes() == whole
    expected = torch.zeros_like(x)
    expected[[0, 2, 3]] = x[[0, 2, 3]]
    assert torch.equal(again.stages["pgd-3"].adversaries(torch.zeros_like(x)), expected)
    again.stages["pgd-3"].keep(torch.tensor([1]), x[[1]])
    again.save()
    assert torch.equal(Ledger(path, "one").stages["pgd-3"].adversaries(torch.zeros_like(x)), x)
    for damaged in (bytes([whole[0] ^ 1]) + rows.read_bytes()[1:], whole, b""):
        rows.write_bytes(damaged)
        assert not Ledger(path, "one").resumed
    again.close()
    assert list(tmp_path.iterdir()) == []


def test_the_same_evaluation_in_another_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.safetensors"
    with Ledger(path, "one", exclusive=True), pytest.raises(UserError, match="another process"):
        Ledger(path, "one", exclusive=True)  # a second descriptor excludes as one of another process does
    ledger = Ledger(path, "one", exclusive=True)
    ledger.close()
    assert list(tmp_path.iterdir()) == []


CHILD = """
import os, signal, sys
import uiat.evaluation.ledger as module
save, count = module.Ledger.save, 0
def dying(ledger):
    global count
    save(ledger)
    count += 1
    if count == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
module.Ledger.save = dying
from uiat.cli import main
sys.exit(main(sys.argv[2:]))
"""


def test_a_killed_command_resumes(robust_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--attacks", "natural", "pgd-3", "apgd-ce", "--n", "24", "--batch-size", "8", "--exact"]
    args = ["evaluate", str(robust_run), *flags, "--save-adversaries"]
    assert call(capsys, *args, str(tmp_path / "unbroken")).code == 0
    command = [sys.executable, "-c", CHILD, "5", *args, str(tmp_path / "broken")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "broken").exists()
    assert list(robust_run.glob("evaluation-*.safetensors"))
    resumed = call(capsys, *args, str(tmp_path / "broken"))
    assert resumed.code == 0
    assert "resuming an interrupted evaluation" in resumed.err
    assert not list(robust_run.glob("evaluation-*.safetensors"))
    one, two = load_file(tmp_path / "unbroken"), load_file(tmp_path / "broken")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
