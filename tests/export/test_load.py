"""`uiat.load`: the same logits from a run, an export and a Hub folder; no code in a folder is run."""

import doctest
import importlib
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import uiat
from tests.export.test_custom_networks import NETWORK, REGISTERED
from tests.support.calls import call, refused
from tests.support.exports import FAMILIES, GREY, images, make_run
from uiat import UserError
from uiat.export.exported_folder import write_folder
from uiat.export.loaded_run import load_run
from uiat.export.model_card import HubCard
from uiat.models import DESCRIPTIONS, MODELS, Imported
from uiat.runs import saved
from uiat.runs.run_folder import RunFolder

TRAP = "from pathlib import Path\nPath(__file__).with_name('trace').touch()\n"


def export(run: RunFolder, *, hub: bool = True, onnx: bool = False) -> Path:
    out = run.path / ("hub" if hub else "export")
    named = getattr(run.read_config().model, "target", "")
    write_folder(load_run(run.path, "best", None, named), out, onnx=onnx, hub=HubCard() if hub else None)
    return out


@pytest.mark.parametrize("name", FAMILIES)
def test_the_logits_are_the_same_bits(name: str, tmp_path: Path) -> None:
    run, expected = make_run(tmp_path / "run", *FAMILIES[name])
    for folder in (run.path, export(run, hub=False), export(run)):
        before = torch.get_rng_state()
        model = uiat.load(folder)
        assert not any(part.training for part in model.modules())
        with torch.no_grad():
            assert torch.equal(model(images(FAMILIES[name][1])), expected)
        assert torch.equal(torch.get_rng_state(), before)


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "runs" / "b", *FAMILIES["resnet"])
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder().find(saved.load, "load", module=saved, globs={})
    found = doctest.DocTestRunner().run(example)
    assert found == (0, 3)


READER = """\
import sys
absent = "tyro rich matplotlib sklearn scipy pyautoattack pooch pandas huggingface_hub".split()
for name in absent:
    sys.modules[name] = None
import torch, uiat
from safetensors.torch import load_file, save_file
torch.set_num_threads(1)
for k, folder in enumerate(sys.argv[1:]):
    with torch.no_grad():
        save_file({"logits": uiat.load(folder)(load_file("x.safetensors")["x"].clone())}, f"logits-{k}.safetensors")
"""


def test_in_a_process_that_never_saw_the_training(tmp_path: Path) -> None:
    run, expected = make_run(tmp_path / "run", *FAMILIES["preact-raw"])
    elsewhere = tmp_path / "elsewhere"
    export(run).rename(elsewhere)
    export(run, hub=False).rename(elsewhere / "plain")
    for folder in (elsewhere, elsewhere / "plain"):
        (folder / "model.py").write_text(TRAP)
    save_file({"x": images(FAMILIES["preact-raw"][1])}, elsewhere / "x.safetensors")
    run.path.rename(tmp_path / "gone")
    done = subprocess.run(
        [sys.executable, "-c", READER, ".", "plain"],
        cwd=elsewhere,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert torch.equal(load_file(elsewhere / "logits-0.safetensors")["logits"], expected)
    assert torch.equal(load_file(elsewhere / "logits-1.safetensors")["logits"], expected)
    assert not list(tmp_path.rglob("trace"))


@pytest.mark.skipif(not (find_spec("onnx") and find_spec("onnxruntime")), reason="onnx or onnxruntime is not installed")
def test_the_runtime_agrees(tmp_path: Path) -> None:
    import onnxruntime

    run, _ = make_run(tmp_path / "run", *FAMILIES["wrn-silu-normalised"])
    folder = export(run, onnx=True)
    x = images(FAMILIES["wrn-silu-normalised"][1])
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    found = torch.tensor(session.run(["logits"], {"x": x.numpy()})[0])
    with torch.no_grad():
        torch.testing.assert_close(found, uiat.load(folder)(x), rtol=1e-4, atol=1e-5)


def test_which_weights(tmp_path: Path) -> None:
    run, expected = make_run(tmp_path / "run", *FAMILIES["resnet"])
    assert not torch.equal(uiat.load(run.path, weights="last")(images(GREY)), expected)
    with pytest.raises(UserError, match="'best'"):
        uiat.load(run.path, weights="Best")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="omit the choice 'last'"):
        uiat.load(export(run), weights="last")


def test_what_is_no_network(tmp_path: Path) -> None:
    for path, message in ((tmp_path, "is not a run folder"), (tmp_path / "nowhere", "there is no folder")):
        with pytest.raises(UserError, match=message):
            uiat.load(path)


def test_a_custom_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own_to_load.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run, expected = make_run(tmp_path / "run", Imported("own_to_load:by_spec"), GREY)
    folder = export(run)
    del sys.modules["own_to_load"]
    (folder / "own_to_load.py").write_text(TRAP)
    monkeypatch.chdir(folder)  # where a module of that name would be found
    for place in (run.path, folder, Path()):
        with pytest.raises(UserError, match=r"is 'own_to_load:by_spec', code .* \(model='own_to_load:by_spec'"):
            uiat.load(place)
    assert "then add --model own_to_load:by_spec" in refused(capsys, "evaluate", str(folder))
    assert "own_to_load" not in sys.modules
    monkeypatch.chdir(tmp_path)
    for place in (run.path, folder):
        assert torch.equal(uiat.load(place, model="own_to_load:by_spec")(images(GREY)), expected)
    assert call(capsys, "evaluate", str(folder), "--model", "own_to_load:by_spec", "--n", "5").code == 0
    assert not list(tmp_path.rglob("trace"))


def test_a_registered_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (MODELS, DESCRIPTIONS):
        monkeypatch.setitem(registry, "registered_to_load", None)
    (tmp_path / "registered_to_load.py").write_text(REGISTERED.replace("NAME", "registered_to_load"))
    monkeypatch.syspath_prepend(str(tmp_path))
    config = importlib.import_module("registered_to_load").Registered
    run, expected = make_run(tmp_path / "run", replace(config(), width=5), GREY)
    folder = export(run)
    assert torch.equal(uiat.load(folder)(images(GREY)), expected)
    del MODELS["registered_to_load"]
    with pytest.raises(UserError, match=r"'Registered' .*import"):
        uiat.load(folder)
