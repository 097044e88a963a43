"""`--onnx`; the package onnx is optional, so its output is tested only where it is installed."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.calls import call, missing_facts, refused
from tests.support.exports import FAMILIES, GREY, images, make_run
from uiat import UserError
from uiat.export import exported_folder
from uiat.export.exported_folder import write_onnx


def test_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _ = make_run(tmp_path / "run", *FAMILIES["resnet"])
    monkeypatch.setattr(exported_folder, "find_spec", lambda name: None)
    message = refused(capsys, "export", str(run.path), "--onnx")
    assert missing_facts(message, "--onnx 'pip install onnx'") == []
    assert not (run.path / "export").exists()


def test_what_is_asked_of_the_exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def export(model: nn.Module, args: tuple[Tensor], path: str, **options: Any) -> None:
        assert args[0].shape == (2, *GREY.shape)
        assert options["dynamic_axes"] == {"x": {0: "batch"}, "logits": {0: "batch"}}
        Path(path).write_text("written")

    def add_metadata(path: Path, facts: dict[str, Any]) -> None:
        assert path.read_text() == "written"
        assert facts["classes"] == ["a", "b"]

    monkeypatch.setattr(torch.onnx, "export", export)
    monkeypatch.setattr(exported_folder, "_add_metadata", add_metadata)
    write_onnx(nn.Flatten(), GREY, ["a", "b"], tmp_path / "model.onnx")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("model.onnx", "written")]


def test_a_network_that_onnx_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("no such operation\nand much more")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(UserError, match=r"ONNX .*no such operation.*--onnx"):
        write_onnx(nn.Flatten(), GREY, ["a", "b"], tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not (find_spec("onnx") and find_spec("onnxruntime")), reason="onnx or onnxruntime is not installed")
@pytest.mark.parametrize("name", FAMILIES)
def test_the_logits_of_the_runtime(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import onnxruntime

    run, expected = make_run(tmp_path / "run", *FAMILIES[name])
    assert call(capsys, "export", str(run.path), "--onnx").code == 0
    session = onnxruntime.InferenceSession(str(run.path / "export" / "model.onnx"))
    metadata = {key: json.loads(text) for key, text in session.get_modelmeta().custom_metadata_map.items()}
    channels, *size = FAMILIES[name][1].shape
    assert (metadata["size"], metadata["colour"]) == (size, "grey" if channels == 1 else "RGB")
    assert metadata["classes"] == [f"class {k}" for k in range(expected.shape[1])]
    assert metadata["range"] == [0, 1]
    for count in (1, 5):
        found = torch.tensor(session.run(["logits"], {"x": images(FAMILIES[name][1])[:count].numpy()})[0])
        torch.testing.assert_close(found, expected[:count], rtol=1e-4, atol=1e-5)
