"""HAT's helpers: one run for all that share it, trained once, with the bits of a helper trained within the run."""

import re
import signal
from pathlib import Path

import pytest

from tests.reproduce.test_runs import begun, trained
from tests.support.calls import call
from tests.support.moments import STEP
from tests.support.tiny import TINY, fork_command, tiny_scale
from uiat.data import load_splits
from uiat.distributed import pick_device
from uiat.engine import loop
from uiat.methods import HAT
from uiat.reproduce import runner
from uiat.reproduce.budget import cell_passes
from uiat.reproduce.cell import Cell, Store, helper_cell, helper_store, merge, method_name, with_helpers
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.scales import SCALES
from uiat.runs.run_folder import RunFolder

STEPS = 2
"""Steps of an epoch of 60 images; a run has three epochs."""
ONE = ("reproduce", "table1", "--only", "hat", "--jobs", "0", "--out")


def hat() -> Cell:
    with tiny_scale():
        return Cell(TINY.config("hat"))


def test_the_paper_needs_seven_helpers() -> None:
    scale = SCALES["paper"]
    plain = merge(cell for build in EXPERIMENTS.values() for cell in build(scale).cells(1))
    cells = with_helpers(plain, Path("nowhere"))
    new = [cell for cell in cells if cell.key not in {cell.key for cell in plain}]
    assert len([cell for cell in plain if isinstance(cell.config.method, HAT)]) == 10
    assert len(new) == 7, "CIFAR-10, CIFAR-100, SVHN, and four of Table 4"
    assert all(method_name(cell.config) == "natural" and not cell.measures for cell in new)
    shared = helper_cell(Cell(scale.config("hat")))
    assert shared is not None
    assert shared.config.train.epochs == 50, "Figure 1's natural network has 100 epochs"
    places = {cell.key: place for place, cell in enumerate(cells)}
    for cell in cells:
        helper = helper_cell(cell)
        assert helper is None or places[helper.key] < places[cell.key]
    assert with_helpers(cells, Path("nowhere")) == cells


def test_passes_are_counted_once(tmp_path: Path) -> None:
    cell = hat()
    helper, same = with_helpers([cell], tmp_path)
    assert same == cell
    assert cell_passes(helper.config) == (180, 0, 180)
    assert cell_passes(cell.config)[2] == 540, "three forwards of a step have a backward; none is the helper's"


def test_it_is_the_helper_that_hat_would_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A `--cell` command gives the bits of a HAT run with a helper in its folder; both can be resumed."""
    cell = hat()
    alone = RunFolder.create(tmp_path / "alone", cell.config)
    assert loop.train(cell.config, alone, load_splits(cell.config.data), pick_device("cpu"))
    out = tmp_path / "out"
    with tiny_scale():
        found = call(capsys, "reproduce", "--cell", cell.key, "--out", str(out))
    assert found.code == 0, found.err
    store = Store(cell, out)
    helper = helper_store(store)
    assert helper is not None
    assert begun(found.err) == [helper.path.name, store.path.name]
    assert not list(helper.measures.iterdir()), "what Figure 1 measures is not this command's"
    assert not store.run.helper.readlink().is_absolute()
    assert store.run.helper.resolve() == helper.path.resolve()
    for mine, other in ((store.run, alone), (helper.run, RunFolder(alone.helper))):
        assert mine.last.read_bytes() == other.last.read_bytes()
        assert mine.best.read_bytes() == other.best.read_bytes()


@pytest.mark.parametrize(("step", "in_hat"), [(3, False), (3 * STEPS + 3, True)])
def test_killed_and_started_again(step: int, in_hat: bool, tmp_path: Path) -> None:
    """Killed in the helper's training, or in HAT's: no epoch of the helper is made twice."""
    out, cell = tmp_path / "out", hat()
    code, output = fork_command(tmp_path / "1.txt", *ONE, str(out), kill_at=f"{STEP}:{step}").end()
    assert code == -signal.SIGKILL, output
    kept = trained(out)
    assert len(kept) == in_hat
    code, output = fork_command(tmp_path / "2.txt", *ONE, str(out)).end()
    assert code == 0, output
    names = [name.rpartition("-s0")[0] for name in begun(output)]
    assert names == (["digits-hat"] if in_hat else ["digits-natural", "digits-hat"])
    assert "resuming at epoch 2" in output
    assert {name: trained(out)[name] for name in kept} == kept
    helper = helper_store(Store(cell, out))
    assert helper is not None
    assert [line["epoch"] for line in helper.run.read_metrics() if line["kind"] == "epoch"] == [1, 2, 3]


def test_two_commands_make_it_once(tmp_path: Path) -> None:
    """Tables 1 and 3 at once: two HAT runs; one process trains the helper while the other waits for it."""
    out = tmp_path / "out"
    args = ("--only", "hat", "--jobs", "0", "--out", str(out))
    pair = [fork_command(tmp_path / f"{name}.txt", "reproduce", name, *args) for name in ("table1", "table3")]
    ends = [process.end() for process in pair]
    assert [code for code, _ in ends] == [0, 0], ends
    made = [begun(args) for _, args in ends]
    assert len([name for name in made[0] + made[1] if name.startswith("digits-natural")]) == 1
    assert len(made[0] + made[1]) == 3 == len(trained(out))
    (helper,) = {link.resolve() for link in out.glob("runs/*/helper")}
    assert helper.name.startswith("digits-natural")
    assert len(list(out.glob("runs/*/helper"))) == 2


def test_a_helper_that_fails_takes_its_runs_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*args: object, **named: object) -> bool:
        raise RuntimeError("no luck")

    with tiny_scale():
        with monkeypatch.context() as patch:
            patch.setattr(runner, "train", train)
            found = call(capsys, *ONE, str(tmp_path))
        assert found.code == 1
        assert len(re.findall(r"^failed: digits-natural-\S+: RuntimeError: no luck$", found.err, re.M)) == 1
        assert (
            len(re.findall(r"^failed: digits-hat-\S+: its helper digits-natural-\S+ is not fin", found.err, re.M)) == 1
        )
        assert "2 of 2 runs failed" in found.err
        assert call(capsys, *ONE, str(tmp_path)).code == 0


def test_an_existing_helper_is_kept(tmp_path: Path) -> None:
    """A run that started with a helper in its folder keeps it."""
    store = Store(hat(), tmp_path)
    assert len(with_helpers([store.cell], tmp_path)) == 2
    store.run.helper.mkdir(parents=True)
    assert helper_store(store) is None
    assert with_helpers([store.cell], tmp_path) == [store.cell]


def test_a_plan_lists_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tiny_scale():
        found = call(capsys, "reproduce", "table1", "table3", "--only", "hat", "--plan", "--out", str(tmp_path))
    assert "3 runs, 3 to make" in found.out
    assert len(re.findall(r"^digits-natural-\S+ · HAT's helper · new · 0.00 0.00 0.00 ", found.out, re.M)) == 1
    assert found.out.count(" --cell ") == 3
