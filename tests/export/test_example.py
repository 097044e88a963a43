"""`example.py` of an export predicts what `uiat predict` does, without uiat or NumPy."""

import json
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.test_predict import photos_run, predicted, vary
from tests.export.test_custom_networks import NETWORK
from tests.support.data_files import CLASSES, fill
from tests.support.exports import FAMILIES, GREY, make_run
from tests.support.processes import forget, fork
from uiat.data.image_folder import find_images
from uiat.export.exported_folder import write_folder
from uiat.export.loaded_run import load_run
from uiat.io import write_json
from uiat.models import Imported
from uiat.runs.run_folder import read_json

READER = """\
import importlib, json, sys, warnings
warnings.simplefilter("ignore")  # torch misses NumPy
sys.modules["uiat"] = sys.modules["numpy"] = None
import torch
torch.set_num_threads(1)
pictures, *folders = sys.argv[1:]
found = {}
for folder in folders:
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    example, model = importlib.import_module("example"), importlib.import_module("model").load()
    found[folder] = [dict(example.classify(model, file)) for file in json.loads(pictures)]
    sys.path.remove(folder)
    for name in ("example", "model", "network"):
        sys.modules.pop(name, None)
print(json.dumps(found))
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pictures of all kinds."""
    monkeypatch.chdir(tmp_path)
    folder = fill(tmp_path / "photos", dict.fromkeys(CLASSES, 2))
    vary(folder)
    return [str(file) for file in find_images(folder)]


def test_it_says_what_predict_says(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For photos in colour, for grey images, and with a custom network."""
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_to_classify.py").write_text(NETWORK)
    photos_run(tmp_path / "photos-run")
    make_run(tmp_path / "grey", *FAMILIES["resnet"])
    make_run(tmp_path / "custom", Imported("own_to_classify:by_spec"), GREY)
    custom = {"custom": "own_to_classify:by_spec"}
    expected, spread = {}, 0.0
    for name in ("photos-run", "grey", "custom"):
        write_folder(load_run(Path(name), "best", None, custom.get(name, "")), Path(f"{name}-export"))
        model = ["--model", custom[name]] if name in custom else []
        images = predicted(capsys, name, *files, *model, "--top", "99", "--batch-size", "1")["images"]
        expected[f"{name}-export"] = [
            {entry["class"]: entry["probability"] for entry in image["predictions"]} for image in images
        ]
        spread = max(
            spread, *(abs(one[k] - expected[f"{name}-export"][0][k]) for one in expected[f"{name}-export"] for k in one)
        )
    assert spread > 0.01  # else the test could not detect a difference
    args = [sys.executable, "-I", "-c", READER, json.dumps(files), *expected]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for folder, rows in expected.items():
        assert len(found[folder]) == len(files)
        for one, other in zip(found[folder], rows, strict=True):
            assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
            assert next(iter(one)) == max(other, key=lambda label: other[label])  # the most probable class is first


def test_a_picture_that_cannot_be_read_is_skipped(tmp_path: Path) -> None:
    """With the reason, as by `uiat predict`."""
    folder = fill(tmp_path / "photos", dict.fromkeys(CLASSES, 1))
    (tmp_path / "broken.png").write_bytes(b"no picture")
    run = photos_run(tmp_path / "run")
    write_folder(load_run(run.path, "best", None), tmp_path / "export")
    whole = [str(file) for file in find_images(folder)]
    code, output = fork(tmp_path / "log.txt", run_example, tmp_path, "broken.png", *whole).end()
    assert code == 1, output
    first, *lines = output.splitlines()
    assert first.startswith("broken.png: no prediction (it is not an image")
    assert [line.partition(": ")[0] for line in lines] == whole
    code, output = fork(tmp_path / "log.txt", run_example, tmp_path).end()
    assert (code, output) == (1, "usage")


def run_example(folder: Path, *pictures: str) -> int:
    """Run `python export/example.py` in a fork that has forgotten `uiat`; return the exit code."""
    forget("uiat")
    os.chdir(folder)
    sys.argv, sys.modules["uiat"] = ["example.py", *pictures], None  # type: ignore[assignment]
    sys.path.insert(0, str(folder / "export"))
    try:
        runpy.run_path("export/example.py", run_name="__main__")
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code[:5], end="")
        return 1 if stop.code else 0
    return 0


def test_the_runtime_says_what_predict_says(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With pictures prepared by what the metadata of model.onnx says."""
    if not (find_spec("onnx") and find_spec("onnxruntime")):
        pytest.skip("onnx or onnxruntime is not installed")
    import onnxruntime
    import torch

    from uiat.data.pixels import opened, to_pixels

    run = photos_run(tmp_path / "run")
    write_folder(load_run(run.path, "best", None), tmp_path / "export", onnx=True)
    session = onnxruntime.InferenceSession(str(tmp_path / "export" / "model.onnx"))
    facts = {key: json.loads(text) for key, text in session.get_modelmeta().custom_metadata_map.items()}
    height, width = facts["size"]
    assert "`model.onnx` is the same network" in (tmp_path / "export" / "README.md").read_text()
    for image in predicted(capsys, "run", *files, "--top", "99")["images"]:
        with Path(image["file"]).open("rb") as file, opened(file) as picture:
            x = to_pixels(picture, (height, width), facts["colour"] == "grey")[None] / 255
        logits = torch.tensor(session.run(["logits"], {"x": x.numpy()})[0])[0]
        found = dict(zip(facts["classes"], logits.double().softmax(dim=0).tolist(), strict=True))
        expected = {entry["class"]: entry["probability"] for entry in image["predictions"]}
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_an_export_of_an_earlier_version(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has neither example.py nor the preprocessing, which follows from the shape of the images."""
    run = photos_run(tmp_path / "run")
    write_folder(load_run(run.path, "best", None), tmp_path / "export")
    expected = predicted(capsys, "export", files[0])
    card = read_json(tmp_path / "export" / "card.json")
    assert card.pop("preprocessing") == expected["preprocessing"]
    card["files"].remove("example.py")
    write_json(tmp_path / "export" / "card.json", card)
    Path("export/example.py").unlink()
    assert predicted(capsys, "export", files[0])["images"] == expected["images"]
