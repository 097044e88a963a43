"""An evaluation that dies goes on with its next batch and ends as one that never did."""

import os
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

from uiat.attacks import PGD
from uiat.data import Splits
from uiat.evaluation.ledger import Ledger, Stage
from uiat.evaluation.suite import run_suite

ATTACKS = ["natural", "pgd-3-2", "apgd-ce+fab-t"]


class Killed(BaseException):
    """Stands for a process that is gone."""


def measure(model: nn.Module, digits: Splits, ledger: Ledger | None = None) -> dict[str, Tensor]:
    images = digits.test.take(torch.arange(32))
    found = run_suite(
        model, images, ATTACKS, PGD(eps=0.15, step=None), batch_size=16, seed=4, ledger=ledger, keep=True
    ).attacks
    kept = {f"{name}/x_adv": a.x_adv for name, a in found.items() if a.x_adv is not None}
    return {**{name: a.correct for name, a in found.items()}, **kept}


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
            raise Killed  # the batch was attacked, and nobody knows
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


def test_a_killed_command_goes_on(robust_run: Path, tmp_path: Path) -> None:
    def evaluate(out: str, die_at: int = 0) -> subprocess.CompletedProcess[str]:
        flags = ["--attacks", "natural", "pgd-3", "apgd-ce", "--n", "60", "--batch-size", "16", "--exact"]
        words = ["evaluate", str(robust_run), *flags, "--save-adversaries", str(tmp_path / out)]
        command = [sys.executable, "-c", CHILD, str(die_at), *words]
        return subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
        )

    assert evaluate("unbroken").returncode == 0
    killed = evaluate("broken", die_at=6)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "broken").exists()
    assert list(robust_run.glob("evaluation-*.safetensors"))
    resumed = evaluate("broken")
    assert resumed.returncode == 0
    assert "going on with an interrupted evaluation" in resumed.stderr
    assert not list(robust_run.glob("evaluation-*.safetensors"))
    one, two = load_file(tmp_path / "unbroken"), load_file(tmp_path / "broken")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
