"""Published weights: beside the file of a run, loaded without training, and equal to those that were measured."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file

import uiat
from benchmarks.results_page import published_weights
from benchmarks.results_pairs import Published
from tests.support.calls import call, refused
from tests.support.tiny import TINY, tiny_scale
from tools.publish_runs import publish, publish_all_weights
from uiat.errors import UserError
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.measures import Attacked
from uiat.runs.published import publish_weights, readable_folder, weights_file

RESULTS = Path(__file__).resolve().parents[2] / "results" / "cpu"
IMAGES = Path(__file__).with_name("cifar10_test_images.npz")
"""The first 200 test images of CIFAR-10 at 16×16, as the runs of the `cpu` scale see them, and their labels."""


@pytest.fixture
def published(made: Path, tmp_path: Path) -> Path:
    """Publish the run of SAT and its weights, and return its file."""
    with tiny_scale():
        name = Cell(TINY.config("sat")).name
    source, out = tmp_path / "from", tmp_path / "out"
    shutil.copytree(made / "runs" / name, source / "runs" / name, symlinks=True)
    publish(source, out)
    publish_all_weights(source, out, [])
    return out / "runs" / f"{name}.json"


def test_a_published_network_is_loaded_by_its_name_or_file(published: Path, made: Path) -> None:
    x = torch.rand(3, 1, 8, 8)
    expected = uiat.load(made / "runs" / published.stem, weights="last")(x)
    for source in (published, str(published.with_suffix(""))):
        for weights in ("best", "last"):
            assert torch.equal(uiat.load(source, weights=weights)(x), expected)
    entry = json.loads(published.read_text("utf-8"))["weights"]
    assert published.stem in "".join(published_weights(Published(published.parents[1], TINY, 1)))
    assert (published.parent / entry["file"]).resolve() == weights_file(published).resolve()


def test_commands_take_a_published_network(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, card = published.read_bytes(), tmp_path / "card.json"
    assert call(capsys, "evaluate", str(published), "--attacks", "natural", "--json", str(card)).code == 0
    measured = json.loads(card.read_text("utf-8"))
    assert measured["weights"] == "last.safetensors"
    own = Store(Cell(TINY.config("sat")), published.parents[1]).read(Attacked("natural", TINY.images, "last"))
    assert own is not None
    assert measured["weights_digest"] == own["weights_digest"]
    assert "not kept" in call(capsys, "evaluate", str(published), "--attacks", "natural").err
    monkeypatch.chdir(tmp_path)
    args = ["--n", "20", "--attack", "pgd-2", "--against", str(published)]
    assert call(capsys, "curves", str(published.with_suffix("")), *args).code == 0
    assert (tmp_path / "curves").is_dir(), "beside what is read"
    assert call(capsys, "report", str(published), "--n", "20", "-o", str(tmp_path / "report.html")).code == 0
    assert published.read_bytes() == before


def test_new_measurements_need_no_training(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = published.parents[1]
    store = Store(Cell(TINY.config("sat"), (Attacked("pgd-2", 10, "last"),)), out)
    assert not store.finished
    assert not store.lacks_weights()
    assert Store(Cell(TINY.config("sat"), (Attacked("pgd-2", 10, "best"),)), out).lacks_weights()
    store.unpack()
    publish(out, out)
    assert not published.with_suffix("").exists(), "its weights are published"
    assert load_file(readable_folder(published.with_suffix("")) / "last.safetensors")


def test_weights_of_another_training_are_refused(published: Path, made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(made / "runs" / published.stem, other, symlinks=True)
    metrics = other / "metrics.jsonl"
    metrics.write_text(metrics.read_text("utf-8").replace('"epoch": 1,', '"epoch": 1, "changed": 1,'), "utf-8")
    with pytest.raises(UserError, match="its metrics differ"):
        publish_weights(other, published)


def test_damaged_or_missing_weights(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = weights_file(published)
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    assert file.name in refused(capsys, "evaluate", str(published))
    file.unlink()
    assert "without weights" in refused(capsys, "evaluate", str(published))
    assert call(capsys, "compare", str(published)).code == 0


def committed() -> list[Path]:
    return sorted((RESULTS / "weights").glob("*.safetensors"))


def test_each_weights_file_belongs_to_a_published_run() -> None:
    named = {
        file.stem for file in (RESULTS / "runs").glob("*.json") if "weights" in json.loads(file.read_text("utf-8"))
    }
    assert named == {file.stem for file in committed()}


@pytest.mark.parametrize("file", committed(), ids=lambda file: file.stem)
def test_a_published_network_gives_the_verdicts_of_its_card(file: Path) -> None:
    """Natural verdicts are equal, unless two logits nearly are; under attack, other CPUs' rounding is amplified."""
    path = RESULTS / "runs" / f"{file.stem}.json"
    network = uiat.load(path)
    arrays = np.load(IMAGES)
    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"]).long()
    known = published_verdicts(path)
    found: Any = uiat.evaluate(network, x, y, ("natural", "pgd-20"), eps=8 / 255)
    with torch.no_grad():
        top = network(x.float() / 255).topk(2).values
    clear = top[:, 0] - top[:, 1] > 1e-3
    assert int(clear.sum()) >= 195
    natural = found["natural"].correct
    assert torch.equal(natural[clear], known["natural"][: len(y)][clear])
    assert int((found["pgd-20"].correct != known["pgd-20"][: len(y)]).sum()) <= 6, "3 % of the images"


def published_verdicts(path: Path) -> dict[str, torch.Tensor]:
    """Return the verdicts on all test images at the last epoch, by attack."""
    folder = readable_folder(path.with_suffix(""))
    verdicts = {}
    for record in sorted((folder / "measures").glob("*.json")):
        facts = json.loads(record.read_text("utf-8"))
        if facts.get("weights") == "last" and facts.get("split", "test") == "test" and facts.get("n") == 10_000:
            verdicts[facts["attack"]] = load(record.with_suffix(".safetensors").read_bytes())["correct"]
    return verdicts
