"""`uiat inverse`."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.image import imread
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from tests.support.calls import call, missing_facts, refused
from tests.support.runs import load_checkpoint
from tests.support.uiat_run import CONFIG, DATA, INNER, images, network, trained
from uiat.data.images import balanced
from uiat.evaluation.inverses import shown_places
from uiat.report.inverse_grid import PictureRow, draw_inverses, stretched
from uiat.runs.run_folder import RunFolder, read_json

FAST = ("--n", "50", "--z-images", "150", "--passes", "1", "--rows", "1")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.open(shutil.copytree(trained().path, tmp_path / "run"))


def inverse(
    capsys: pytest.CaptureFixture[str], run: RunFolder, *args: str
) -> tuple[dict[str, Any], dict[str, Tensor], str]:
    found = call(capsys, "inverse", str(run.path), *FAST, *args)
    assert found.code == 0, found.err
    folder = run.path / "inverse"
    return read_json(folder / "inverse.json"), load_file(folder / "inverse.safetensors"), found.out


def test_the_files(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    content, tensors, _ = inverse(capsys, run)
    assert {path.name for path in (run.path / "inverse").iterdir()} == {
        *("inverse.json", "inverse.png", "inverse.safetensors"),
    }
    assert set(tensors) == {"x", "y", "x_inverse", "x_universal", "z", "index"}
    assert tensors["index"].tolist() == list(range(50))
    assert torch.equal(tensors["x"], images().test.x[:50].float() / 255)
    assert torch.equal(tensors["y"], images().test.y[:50])
    for name in ("x_inverse", "x_universal"):
        assert 0 <= float(tensors[name].min()) <= float(tensors[name].max()) <= 1
        assert float((tensors[name] - tensors["x"]).abs().max()) <= INNER + 1e-6
    assert float(tensors["z"].abs().max()) <= INNER + 1e-6
    assert torch.equal(tensors["x_universal"], (tensors["x"] + tensors["z"][tensors["y"]]).clamp(0, 1))
    assert content["overall"]["lowered"]["cross_entropy"]["inverse"] > 0.9
    assert float(imread(run.path / "inverse" / "inverse.png")[..., :3].std()) > 0.1


def test_accuracies_are_those_of_the_examples(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    content, tensors, _ = inverse(capsys, run, "--exact")
    for kind, name in (("natural", "x"), ("inverse", "x_inverse"), ("universal", "x_universal")):
        right = network()(tensors[name]).argmax(dim=1) == tensors["y"]
        assert content["overall"]["accuracy"][kind] == float(right.double().mean())
        for label, share in ((c, row["accuracy"][kind]) for c, row in content["classes"].items()):
            assert share == float(right[tensors["y"] == int(label)].double().mean())


def test_the_last_weights_come_with_the_runs_own_z(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    content, tensors, out = inverse(capsys, run, "--weights", "last")
    saved = load_checkpoint(run)["method"]
    (z,) = (value for name, value in saved.items() if name.endswith("z"))
    assert torch.equal(tensors["z"], z)
    source = f"read from the checkpoint of the run, after epoch {CONFIG.train.epochs}"
    assert content["z"] == source
    assert f"z: {source}" in " ".join(out.split())
    with safe_open(run.path / "inverse" / "inverse.safetensors", framework="pt") as file:
        assert file.metadata()["z"] == source


@pytest.mark.parametrize("args", ["", "--weights last --inverse-eps 0.05", "--weights last --beta 0"])
def test_other_weights_and_settings_have_another_z(
    args: str, run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    content, tensors, out = inverse(capsys, run, *args.split())
    assert content["z"] == "computed for these weights, in 1 pass over 150 training images"
    assert content["z"] in " ".join(out.split())
    assert float(tensors["z"].abs().max()) <= content["universal"]["eps"] + 1e-6
    assert content["instance"]["step"] == content["instance"]["eps"] / 2


def test_the_table_says_the_same(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    content, _, out = inverse(capsys, run)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    assert [row[0] for row in rows] == [*content["classes"], "all"]
    whole = content["overall"]
    groups = (whole["accuracy"], whole["lowered"]["cross_entropy"], whole["lowered"]["l_inv"])
    assert rows[-1][1] == "50"
    for cell, group in zip(rows[-1][2:], groups, strict=True):
        assert [float(number) for number in cell.split("/")] == pytest.approx(
            [100 * share for share in group.values()], abs=0.051
        )


def test_what_is_saved_and_shown(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--sample", "balanced", "--seed", "4", "--save", "0", "--rows", "3", "--per-class", "2")
    _, tensors, _ = inverse(capsys, run, *args)
    chosen = balanced(images().test.y, 50, 4)
    assert len(tensors["y"]) == 6
    assert sorted(tensors["y"].tolist()) == [0, 0, 1, 1, 2, 2]
    assert set(tensors["index"].tolist()) <= set(chosen.tolist())
    assert torch.equal(tensors["x"], images().test.x[tensors["index"]].float() / 255)


def test_the_first_images_of_the_first_classes() -> None:
    y = torch.tensor([5, 2, 2, 9, 5, 2])
    assert shown_places(y, 2, 2).tolist() == [1, 2, 0, 4]
    assert shown_places(y, 9, 1).tolist() == [1, 0, 3]


@pytest.mark.parametrize("channels", [1, 3])
def test_the_grid(channels: int) -> None:
    x = torch.rand((3, channels, 8, 8), generator=torch.Generator().manual_seed(0))
    z = torch.zeros(channels, 8, 8).fill_(0.1)
    rows = [PictureRow(f"class ${k}$", x[k], x[k], x[k], z, (0.2, 0.5, 0.99999)) for k in range(3)]
    figure = draw_inverses(rows, title="a run")
    cells = [axes for axes in figure.axes if axes.get_images()]
    assert len(cells) == 15
    assert [cells[k].get_title().replace("\n", " ") for k in range(5)] == [
        *("natural", "inverse perturbation", "inverse adversary"),
        *("universal inverse perturbation", "universal inverse adversary"),
    ]
    assert [cells[5 * k].get_ylabel() for k in range(3)] == ["class $0$", "class $1$", "class $2$"]
    assert cells[4].get_xlabel() == "p = 1.0000"
    shown = torch.as_tensor(cells[3].get_images()[0].get_array())
    assert shown.shape == ((8, 8) if channels == 1 else (8, 8, 3))
    assert bool((shown == 1).all())  # the largest perturbation is the end of the range


def test_no_perturbation_is_in_the_middle() -> None:
    assert stretched(torch.tensor([-0.1, 0.0, 0.05, 0.2]), 0.1).tolist() == [0, 0.5, 0.75, 1]


@pytest.mark.parametrize(
    ("args", "facts"),
    [
        ("--n 121", f"--n 121 {DATA.test_subset}"),
        ("--rows 0", "--rows 0 1"),
        ("--per-class 0", "--per-class 0 1"),
        ("--save -1", "--save -1 0"),
        ("--passes 0", "--passes 0 1"),
        ("--z-images 0", "--z-images 0 1"),
        ("--inverse-eps 0", "--inverse-eps 0.0"),
    ],
)
def test_bad_options(args: str, facts: str, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert missing_facts(refused(capsys, "inverse", str(run.path), *args.split()), facts) == []
    assert not (run.path / "inverse").exists()


def test_bad_places(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not a run folder" in refused(capsys, "inverse", str(tmp_path))
    run.checkpoint.write_bytes(b"damaged")
    run.previous.unlink()
    assert "damaged or of another version" in refused(capsys, "inverse", str(run.path), "--weights", "last")
