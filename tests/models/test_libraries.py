"""Networks of timm and transformers by name; nothing is downloaded, and timm is a stand-in."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import uiat
from tests.support.calls import call, refused, stopped
from tests.support.runs import TINY, splits
from uiat import Normalized, UserError, models
from uiat.data.data_config import DataConfig
from uiat.models import Imported
from uiat.models.libraries import InputFormat, input_format
from uiat.runs.run_folder import RunFolder, read_json
from uiat.runs.weights import load_weights

SIZES: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
RUN = [word for word in TINY if word not in ("--model.width", "4")]


def save_transformers(folder: Path, kind: str, side: int = 8, **processor: Any) -> nn.Module:
    """Save a random network for digits and its processor, as `save_pretrained` does."""
    import transformers

    torch.manual_seed(0)
    if kind == "vit":
        network = transformers.ViTForImageClassification(
            transformers.ViTConfig(image_size=side, patch_size=4, num_channels=1, num_labels=10, **SIZES)
        )
    else:
        config = transformers.ResNetConfig(
            num_channels=1, embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", num_labels=10
        )
        network = transformers.ResNetForImageClassification(config)
    network.save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return network.eval()  # type: ignore[no-any-return]


SIZE = {"height": 8, "width": 8}
PROCESSOR: dict[str, Any] = {"do_normalize": True, "image_mean": [0.5], "image_std": [0.25], "size": SIZE}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_weights_of_transformers_are_evaluated_as_their_processor_says(
    kind: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = save_transformers(here / "theirs", kind, **PROCESSOR)
    args = ("--model", "transformers:theirs", "--data", "digits", "--n", "40", "--attacks", "natural", "fgsm")
    found = call(capsys, "evaluate", "theirs/model.safetensors", *args, "--json", "out.json")
    assert found.code == 0, found.err
    card = read_json(here / "out.json")
    assert (card["mean"], card["std"]) == ([0.5], [0.25])
    test = splits(DataConfig(name="digits")).test.take(torch.arange(40))
    with torch.no_grad():
        logits = network(pixel_values=(test.x.float() / 255 - 0.5) / 0.25).logits
    own = float((logits.argmax(dim=1) == test.y).double().mean())
    assert card["attacks"]["natural"]["accuracy"] == own
    assert "--mean" not in found.err


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_a_run_with_one_is_trained_resumed_and_loaded(
    kind: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_transformers(here / "theirs", kind, **PROCESSOR)
    network = ("--model", "transformers:theirs")
    recipe = ("train", "digits-resnet8-uiat", *network, "--init", "theirs/model.safetensors", *RUN)
    found = call(capsys, *recipe, "--train.epochs", "1", "--out", "run")
    assert found.code == 0, found.err
    assert " ".join(network) in found.out.splitlines()[-1]
    saved = read_json(here / "run" / "config.json")["model"]
    assert (saved["target"], saved["mean"]) == ("transformers:theirs", [0.5])
    assert call(capsys, "train", "--resume", "run", *network).code == 0
    assert call(capsys, "evaluate", "run", *network, "--attacks", "natural", "--n", "5").code == 0
    for args in (("train", "--resume", "run"), ("evaluate", "run")):  # as custom code: it is not fetched unasked
        assert "--model transformers:theirs" in refused(capsys, *args)
    with pytest.raises(UserError, match="transformers:theirs"):
        uiat.load("run")
    assert isinstance(uiat.load("run", model="transformers:theirs"), Normalized)
    assert "cannot be exported" in stopped(capsys, "export", "run", *network)
    assert RunFolder.open("run").is_finished


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_weights_that_do_not_fit_are_named(kind: str, here: Path) -> None:
    """transformers would replace them by random ones, with a warning."""
    save_transformers(here / "theirs", kind, **PROCESSOR)
    file = here / "theirs" / "model.safetensors"
    tensors = load_file(file)
    network = models.get_model("transformers:theirs").build(splits().spec)
    head = next(name for name in tensors if name.startswith("classifier") and name.endswith("weight"))
    for changed, message in (
        ({**tensors, head: torch.zeros(3, 8)}, "has shape"),
        ({**tensors, "more": torch.zeros(2)}, r"more' \(2,\)"),
        ({name: value for name, value in tensors.items() if name != head}, f"no weights 'model.model.{head}'"),
    ):
        save_file(changed, file)
        with pytest.raises(UserError, match=message):
            load_weights(network, file)
    save_file({**tensors, head: torch.zeros(3, 8)}, file)
    load_weights(network, file, head=(f"model.model.{head}",), fresh_head=True)


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ({"image_mean": [0.5] * 3, "image_std": [0.2] * 3, "size": 12}, InputFormat((0.5,) * 3, (0.2,) * 3, (12, 12))),
        ({"size": {"height": 4, "width": 6}, "do_normalize": False, "image_mean": [0.5]}, InputFormat(size=(4, 6))),
        ({"size": {"shortest_edge": 9}, "crop_size": 8, "do_center_crop": True}, InputFormat(size=(8, 8))),
        ({"size": {"shortest_edge": 9}, "crop_size": 8, "do_center_crop": False}, InputFormat(size=(9, 9))),
        ({"size": 9, "do_resize": False}, InputFormat()),
        ({}, InputFormat()),
    ],
)
def test_a_processor_says_how_it_prepares_images(processor: dict[str, Any], expected: InputFormat, here: Path) -> None:
    save_transformers(here / "theirs", "resnet", **processor)
    assert input_format("transformers:theirs") == expected


def test_other_pixels_than_ours_are_refused(here: Path) -> None:
    save_transformers(here / "theirs", "resnet", do_rescale=True, rescale_factor=1 / 127.5)
    with pytest.raises(UserError, match="rescales bytes"):
        models.get_model("transformers:theirs")


def test_the_size_of_images_is_that_of_the_network(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_transformers(here / "theirs", "vit", side=12, **{**PROCESSOR, "size": 12})
    args = ("--model", "transformers:theirs", "--data", "digits", "--n", "5", "--attacks", "natural")
    found = call(capsys, "evaluate", "theirs/model.safetensors", *args)
    assert found.code == 0, found.err
    assert "resized to 12×12" in found.err
    message = stopped(capsys, "evaluate", "theirs/model.safetensors", *args, "--data.size", "8")
    assert "--data.size" in message
    found = call(capsys, "train", "digits-resnet8-sat", *args[:2], *RUN, "--train.epochs", "1", "--out", "run")
    assert found.code == 0, found.err
    assert "12×12" in found.err
    assert read_json(here / "run" / "config.json")["data"]["size"] == [12, 12]


def test_no_code_of_a_repository_is_run(here: Path) -> None:
    """A repository may name its own classes, in files beside the configuration."""
    folder = here / "theirs"
    folder.mkdir()
    (folder / "theirs.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    classes = {"AutoConfig": "theirs.C", "AutoModelForImageClassification": "theirs.M"}
    (folder / "config.json").write_text(json.dumps({"model_type": "theirs", "auto_map": classes}))
    with pytest.raises(UserError, match="transformers:theirs"):
        models.get_model("transformers:theirs")
    with pytest.raises(UserError, match="transformers:theirs"):
        Imported("transformers:theirs").build(splits().spec)
    assert not (here / "ran").exists()


def test_one_that_is_not_there(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, so that nothing waits for a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (here / "weights.pt").touch()
    message = stopped(capsys, "evaluate", "weights.pt", "--model", "transformers:no/such", "--data", "digits")
    assert "transformers:no/such" in message


class TimmStandIn(SimpleNamespace):
    """The part of timm that is used; a network's configuration is registered, or only an attribute of the network."""

    def __init__(self, attribute: str) -> None:
        super().__init__()
        self.attribute, self.calls = attribute, list[bool]()

    def get_pretrained_cfg(self, name: str) -> SimpleNamespace | None:
        if not re.fullmatch(r"\w+", name):
            raise RuntimeError(f"Unknown model ({name})")
        return None if self.attribute else SimpleNamespace(**self.cfg(name))

    def cfg(self, name: str) -> dict[str, Any]:
        channels = 1 if name == "grey" else 3
        return {"mean": (0.5,) * channels, "std": (0.25,) * channels, "input_size": (channels, 8, 8)}

    def create_model(self, name: str, pretrained: bool, num_classes: int = 1000, in_chans: int = 3) -> nn.Module:
        self.calls.append(pretrained)
        layers = (nn.Conv2d(in_chans, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 6 * 6, num_classes))
        network = nn.Sequential(*layers)
        if self.attribute:
            setattr(network, self.attribute, self.cfg(name))
        return network


@pytest.mark.parametrize("attribute", ["", "pretrained_cfg", "default_cfg"])
def test_a_network_of_timm(
    attribute: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timm = TimmStandIn(attribute)
    monkeypatch.setitem(sys.modules, "timm", timm)
    assert input_format("timm:resnet18") == InputFormat((0.5,) * 3, (0.25,) * 3, (8, 8))
    torch.manual_seed(0)
    network = timm.create_model("grey", pretrained=False, num_classes=10, in_chans=1).eval()
    torch.save(network.state_dict(), "weights.pt")
    args = ("weights.pt", "--model", "timm:grey", "--data", "digits", "--n", "40", "--attacks", "natural")
    found = call(capsys, "evaluate", *args, "--json", "out.json")
    assert found.code == 0, found.err
    assert "1 BatchNorms folded" in found.err
    test = splits(DataConfig(name="digits")).test.take(torch.arange(40))
    own = float((network((test.x.float() / 255 - 0.5) / 0.25).argmax(dim=1) == test.y).double().mean())
    assert read_json(here / "out.json")["attacks"]["natural"]["accuracy"] == own
    assert not any(timm.calls)
    with pytest.raises(UserError, match="3 numbers"):
        models.get_model("timm:resnet18").build(splits().spec)
    for name in ("hf-hub:owner/name", "no-such"):
        with pytest.raises(UserError, match=f"timm:{name}"):
            models.get_model(f"timm:{name}")


@pytest.mark.parametrize("library", ["timm", "transformers"])
def test_a_library_that_is_not_installed(
    library: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    (here / "weights.pt").touch()
    message = refused(capsys, "evaluate", "weights.pt", "--model", f"{library}:name", "--data", "digits")
    assert f"pip install {library}" in message
