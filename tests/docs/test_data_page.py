"""The examples of docs/data.md with custom images and a custom network, run unmodified."""

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.support.calls import call
from tests.support.data_files import CLASSES, fill
from tests.support.documents import blocks
from tests.support.processes import ROOT

SHORT = ("--train.epochs", "2", "--model.width", "4", "--validate.steps", "2")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that has only photos of 64 × 48 pixels in three classes, PNG and JPEG."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path / "data"))
    fill(tmp_path / "photos", dict.fromkeys(CLASSES, 15))
    return tmp_path


def run(page: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Save the files and run the commands of the blocks about photos, in order; return the commands."""
    done = []
    for block in blocks(page):
        if block.text.startswith("# my_net.py"):
            Path("my_net.py").write_text(block.text, encoding="utf-8")
        elif block.language == "bash" and "photos" in block.text:
            for program, *args in block.commands():
                assert program == "uiat"
                if args[:2] == ["data", "fetch"]:
                    continue  # tests download nothing
                assert call(capsys, *args).code == 0, args
                done.append(" ".join(args))
    return done


def test_the_page_about_data(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "my_net", raising=False)
    done = run(ROOT / "docs" / "data.md", capsys)
    monkeypatch.delitem(sys.modules, "my_net", raising=False)
    assert len(done) == 9
    assert any(line.startswith("train --data ./photos") for line in done)
    assert any("--model my_net:build" in line for line in done)
    for name in ("photos", "my-net"):
        card = json.loads(Path("runs", name, "result.json").read_text(encoding="utf-8"))
        assert card["data"]["classes"] == list(CLASSES)
        assert card["data"]["shape"] == [3, 24, 32]
        assert [entry["attack"] for entry in card["evaluations"]] == ["natural", "pgd-20"]
        assert card["evaluations"][0]["accuracy"] > 0.6  # colours are easy to classify, and chance is 0.33
    assert Path("my-net-handover/network.py").is_file()
    assert json.loads(Path("photos.json").read_text(encoding="utf-8"))["classes"] == list(CLASSES)
    assert Path("photos-24/manifest.json").is_file()
    assert Path("photos-test.npz").is_file()


def test_from_photos_to_a_deployed_model(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    """The commands of README and of the page about sharing, with a short training; `example.py` agrees with them."""
    shutil.rmtree("photos")
    fill(here / "photos", {"cats": 15, "dogs": 15})
    lines: list[str] = []
    for block in [*blocks(ROOT / "README.md"), *blocks(ROOT / "docs" / "sharing.md")]:
        for program, *args in block.commands() if "photos" in block.text else ():
            if program == "python":
                done = subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
                lines.append(done.stdout)
            else:
                assert program == "uiat"
                found = call(capsys, *args, *(SHORT if args[0] == "train" else ()))
                assert found.code == 0, found.err
                lines.append(found.out)
    assert len(lines) == 8
    predicted, repeated = (re.findall(r"(\w+) ([\d.]+)%", line.partition(";")[0]) for line in (lines[2], lines[4]))
    assert lines[2].startswith("photos/cats/001.png: ")
    assert [name for name, _ in predicted] == [name for name, _ in repeated]
    assert [float(share) for _, share in predicted] == pytest.approx([float(share) for _, share in repeated], abs=0.011)
    if find_spec("onnx"):
        assert Path("deployed/model.onnx").is_file()


def test_arrays_of_numpy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The function and the command of the page, on arrays of two classes."""
    page = blocks(ROOT / "docs" / "data.md")
    (code,) = (block.text for block in page if block.text.startswith("# my_arrays.py"))
    first, again = next(block for block in page if "my_arrays:load" in block.text).commands()
    Path("my_arrays.py").write_text(code, encoding="utf-8")
    for split, count in (("train", 60), ("test", 12)):
        label = np.arange(count) % 2
        np.save(
            f"x_{split}.npy", np.full((count, 8, 8, 3), 60, np.uint8) + 90 * label[:, None, None, None].astype("u1")
        )
        np.save(f"y_{split}.npy", label)
    monkeypatch.delitem(sys.modules, "my_arrays", raising=False)
    assert call(capsys, *first[1:]).code == 0
    assert call(capsys, *again[1:]).code == 0
    monkeypatch.delitem(sys.modules, "my_arrays", raising=False)
    card = json.loads(Path("runs/arrays/result.json").read_text(encoding="utf-8"))
    assert card["data"]["classes"] == ["0", "1"]
    assert card["data"]["shape"] == [3, 8, 8]
