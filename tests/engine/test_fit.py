"""`uiat.fit` and `uiat.images`: the run of the command line, from a network and images in memory."""

import getpass
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import uiat
from tests.support.calls import call, refused
from tests.support.moments import STEP, Killed, at_call, die
from tests.support.runs import STEPS, TINY, changes_of_settings, snapshot
from uiat import recipes
from uiat.config import AnyConfig
from uiat.config_json import encode
from uiat.data.in_memory import gather_images
from uiat.engine.fit import FitResult
from uiat.engine.setup import build_model
from uiat.errors import UserError
from uiat.runs.published import publish_run
from uiat.runs.run_folder import RunFolder

CPU = torch.device("cpu")


def fit_as(run: RunFolder, out: Path | None, **changes: Any) -> FitResult:
    """Train as in a run of the command line: its images, initial weights and settings."""
    config, splits = run.read_config(), uiat.images(run.path)
    plan = config.train
    with torch.random.fork_rng():
        model = changes.pop("model", None) or build_model(config, splits.spec, CPU)
    given: dict[str, Any] = {
        "method": config.method,
        "epochs": plan.epochs,
        "batch_size": plan.batch_size,
        "lr": plan.schedule.lr,
        "crop": config.data.crop,
        "flip": config.data.flip,
        "seed": config.seed,
        "options": {"validate.steps": 2, "train.log_every": 3, "train.checkpoint_minutes": plan.checkpoint_minutes},
    }
    return uiat.fit(model, splits.train, splits.validation, out=out, **given | changes)


def result_of(run: RunFolder) -> dict[str, object]:
    """Return the snapshot of a run, without the settings that name network and data."""
    found = snapshot(run)
    unlike = ("/result/config/", "/result/data/", "/files", "/checkpoint/provenance", "/result/environment")
    return {name: value for name, value in found.items() if not name.startswith(unlike)}


def weight(model: nn.Module, layer: int) -> Tensor:
    tensor: Tensor = model.state_dict()[f"{layer}.weight"]
    return tensor.clone()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """Return tiny runs of the command line."""
    folder = tmp_path_factory.mktemp("trained")

    def get(method: str) -> RunFolder:
        path = folder / method
        flags = ["--seed", "3", "--train.checkpoint-minutes", "0", "--method.attack.steps", "2"]
        if not path.exists():
            assert uiat_main("train", f"digits-resnet8-{method}", *TINY, *flags, "--out", str(path)) == 0
        return RunFolder.open(path)

    return get


def uiat_main(*args: str) -> int:
    from uiat.cli import main

    return main(list(args))


@pytest.mark.parametrize("method", ["uiat", "hat"])
def test_it_is_the_run_of_the_command_bit_by_bit(
    method: str, trained: Callable[[str], RunFolder], tmp_path: Path
) -> None:
    run = trained(method)
    result = fit_as(run, tmp_path / "fit")
    ours = RunFolder.open(tmp_path / "fit")
    expected, found = result_of(run), result_of(ours)
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    if method == "hat":
        assert (
            result_of(RunFolder(ours.helper))["/last/conv1.weight"]
            == result_of(RunFolder(run.helper))["/last/conv1.weight"]
        )
    assert result.best == run.read_card()["best"]
    assert result.history == ours.read_metrics("epoch")
    assert not result.model.training
    best = load_file(run.best)
    assert all(torch.equal(tensor, best[name]) for name, tensor in result.model.state_dict().items())


def test_its_defaults_are_those_of_the_command_for_custom_images(tmp_path: Path) -> None:
    x, y = torch.rand(40, 1, 8, 8), torch.arange(40) % 2
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with at_call(STEP, 1, die), pytest.raises(Killed):
        uiat.fit(model, (x, y), method="n-fgsm-uiat", out=tmp_path / "run")
    config: AnyConfig = RunFolder.open(tmp_path / "run").read_config()
    recipe = recipes.get_recipe(recipes.CUSTOM_DATA_RECIPE)
    for part in ("train", "method", "validate", "seed"):
        assert encode(getattr(config, part)) == encode(getattr(recipe, part))
    assert (config.data.crop, config.data.flip) == (recipe.data.crop, recipe.data.flip)


def test_it_resumes_from_its_folder_whatever_the_weights_of_the_network_given(
    trained: Callable[[str], RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = trained("uiat"), tmp_path / "fit"
    for step in (1, STEPS):  # before a checkpoint, and after
        with at_call(STEP, step, die), pytest.raises(Killed):
            fit_as(run, out)
    torch.manual_seed(99)
    other = build_model(run.read_config(), uiat.images("digits").spec, CPU)
    with torch.no_grad():
        next(other.parameters()).add_(1)
    result = fit_as(run, out, model=other)
    assert "has its own weights" in capsys.readouterr().err
    assert result.model is other
    found, expected = result_of(RunFolder.open(out)), result_of(run)
    assert [name for name in expected if found[name] != expected[name]] == []
    assert changes_of_settings(RunFolder.open(out).read_card()) == []
    again = fit_as(run, out)  # finished: it is read
    assert (again.best, again.history) == (result.best, result.history)


def test_ctrl_c_saves_the_run(
    trained: Callable[[str], RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = trained("uiat"), tmp_path / "fit"
    with at_call(STEP, 1, lambda: os.kill(os.getpid(), signal.SIGINT)), pytest.raises(KeyboardInterrupt):
        fit_as(run, None)
    assert "give `out` to be able to resume" in capsys.readouterr().err
    with at_call(STEP, STEPS + 1, lambda: os.kill(os.getpid(), signal.SIGINT)), pytest.raises(KeyboardInterrupt):
        fit_as(run, out)
    fit_as(run, out)
    assert result_of(RunFolder.open(out))["/last/conv1.weight"] == result_of(run)["/last/conv1.weight"]


def test_without_a_folder_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    torch.manual_seed(5)
    x, y = np.random.default_rng(0).integers(0, 256, (30, 8, 8), np.uint8), np.arange(30, dtype=np.uint8) % 3
    before = weight(model, 1)
    numbers: dict[str, Any] = {"epochs": np.int64(1), "eps": np.float32(0.25), "lr": torch.tensor(0.5)}
    result = uiat.fit(model, (x, y), method="natural", optimizer="adamw", averaging=True, **numbers)
    assert "lr = 0.5 is large for AdamW" in capsys.readouterr().err
    left = [path.name for path in tmp_path.iterdir()]
    assert [
        name for name in left if name != f"torchinductor_{getpass.getuser()}"
    ] == []  # torch's own, if first used here
    assert torch.equal(torch.rand(3), expected), "the caller's random numbers are not changed"
    assert result.folder is None
    assert result.model is model
    assert not torch.equal(weight(model, 1), before)
    assert len(result.history) == 1
    assert {"val_natural", "raw_val_natural", "train_accuracy"} <= result.history[0].keys()


@torch.no_grad()
def test_a_frozen_layer_stays(tmp_path: Path) -> None:
    """Also where the caller has disabled gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3))
    model[1].requires_grad_(False)
    first, last = weight(model, 1), weight(model, 3)
    uiat.fit(
        model, (torch.rand(30, 1, 8, 8), torch.arange(30) % 3), method="sat", epochs=1, options={"train.fast": False}
    )
    assert torch.equal(weight(model, 1), first)
    assert not torch.equal(weight(model, 3), last)
    assert not any(parameter.requires_grad for parameter in model[1].parameters())


class Transformed(Dataset[Any]):
    """A data set with a random transform."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        return torch.rand(1, 8, 8), index % 3


class Broken(Transformed):
    def __getitem__(self, index: int) -> Any:
        raise OSError("the disk is on fire")


def refusals() -> dict[str, tuple[dict[str, Any], str]]:
    """Return invalid arguments, and facts that the message contains."""
    y = torch.arange(30) % 3
    return {
        "range": ({"train": (torch.rand(30, 1, 8, 8) * 255, y)}, "outside 0 to 1"),
        "type": ({"train": (torch.zeros(30, 1, 8, 8, dtype=torch.int64), y)}, "int64"),
        "labels": ({"train": (torch.rand(30, 1, 8, 8), y + 1)}, "label 3"),
        "stream": ({"train": iter([])}, "iterator"),
        "items": ({"train": [torch.rand(1, 8, 8)]}, "item 0 of the training set"),
        "indices": ({"train": [(0, torch.rand(1, 8, 8), 1)]}, "tuple of 3"),
        "keys": ({"train": [{"picture": 1, "label": 2}]}, "picture"),
        "fraction": ({"train": [(torch.rand(1, 8, 8), 1.5)]}, "its label is float"),
        "broken": ({"train": Broken()}, "OSError: the disk"),
        "transforms": ({"train": Transformed()}, "different pixels each time"),
        "shapes": ({"train": [(torch.rand(1, 8, 8), 0), (torch.rand(1, 9, 8), 1)]}, "(1, 9, 8)"),
        "colour": ({"train": (torch.rand(30, 3, 8, 8), y)}, "the model fails on float32 images of shape (2, 3, 8, 8)"),
        "validation": ({"validation": (torch.rand(9, 1, 10, 8), torch.arange(9) % 3)}, "(1, 10, 8)"),
        "method": ({"method": "uait"}, "uait"),
        "eps": ({"eps": 8}, "8/255"),
        "text": ({"eps": "8/255"}, "give a number"),
        "epochs": ({"epochs": 0}, "epochs"),
        "option": ({"options": {"train.weight_decy": 0.0}}, "train.weight_decay"),
        "part": ({"options": {"train.schedule": 0.1}}, "train.schedule"),
        **{name: ({"options": {name: 1}}, f"'{name}' has no effect") for name in ("data.subset", "model.mean", "init")},
        "value": ({"options": {"train.weight_decay": "much"}}, "weight_decay"),
    }


@pytest.mark.parametrize("case", refusals())
def test_what_is_refused(case: str, tmp_path: Path) -> None:
    changes, fact = refusals()[case]
    given = {"train": (torch.rand(30, 1, 8, 8), torch.arange(30) % 3), **changes}
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(UserError) as error:
        uiat.fit(model, out=tmp_path / "run", **given)
    assert fact in str(error.value)
    assert not (tmp_path / "run").exists()


def test_other_arguments_do_not_resume_a_run(trained: Callable[[str], RunFolder], tmp_path: Path) -> None:
    run, out = trained("uiat"), tmp_path / "fit"
    with at_call(STEP, 2, die), pytest.raises(Killed):
        fit_as(run, out)
    with pytest.raises(UserError, match=r"train\.batch_size .*16 .*fit .*8"):
        fit_as(run, out, batch_size=8)
    with pytest.raises(UserError, match="other names, shapes or types"):
        fit_as(run, out, model=nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))


def test_forms_of_the_data_give_the_same_images() -> None:
    images = uiat.images("digits").test.take(torch.arange(12))
    x, y = images.x, images.y
    unit = x.float() / 255
    pictures = [Image.fromarray(image[0].numpy()) for image in x]
    forms: list[Any] = [
        (x, y),
        (unit, y),
        (unit.double().numpy(), y.int().numpy()),
        (x[:, 0].numpy(), y.tolist()),
        TensorDataset(unit, y),
        [(image, int(label)) for image, label in zip(pictures, y, strict=True)],
        [{"image": image, "label": int(label), "id": 1} for image, label in zip(x, y, strict=True)],
        [{"pixel_values": image, "target": label} for image, label in zip(x, y, strict=True)],
        images,
    ]
    for form in forms:
        found = gather_images(form, "the data")
        assert torch.equal(found.x, x)
        assert torch.equal(found.y, y)
    colour = [(np.zeros((9, 8, 3), np.uint8), 0), (np.ones((9, 8, 3), np.uint8), 1)]
    assert gather_images(colour, "the data").x.shape == (2, 3, 9, 8)


class Named(TensorDataset):
    """A data set with names of classes, as those of torchvision."""

    classes = ("cat", "dog")


class Featured(TensorDataset):
    """The same as those of Hugging Face have them."""

    features: ClassVar[dict[str, Any]] = {"image": object(), "label": SimpleNamespace(names=["cat", "dog"])}


@pytest.mark.parametrize("kind", [Named, Featured])
def test_names_of_classes_are_kept(kind: Any, tmp_path: Path) -> None:
    y = torch.arange(30) % 2
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    uiat.fit(model, kind(torch.rand(30, 1, 8, 8), y), method="natural", epochs=1, out=tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").read_card()["data"]["classes"] == ["cat", "dog"]


def test_classes_in_another_order_are_refused() -> None:
    x, y = torch.rand(30, 1, 8, 8), torch.arange(30) % 2
    model, other = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), Named(x, y)
    other.classes = ("dog", "cat")
    with pytest.raises(UserError, match=r"of the training set and of the validation set differ .*'cat' and 'dog'"):
        uiat.fit(model, Named(x, y), other)


def test_the_commands_read_such_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("fit_net.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    found = uiat.images("digits")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    subset = found.train.part(0, 60)
    uiat.fit(model, subset, found.validation, method="natural", epochs=1, out="run")
    flags = ["--model", "fit_net:build", "--data", "digits", "--n", "20", "--attacks", "natural", "--device", "cpu"]
    assert call(capsys, "evaluate", "run", *flags).code == 0
    loaded = uiat.load("run", model="fit_net:build")
    x: Tensor = found.test.x[:4].float() / 255
    assert torch.equal(loaded(x), model(x))
    assert call(capsys, "compare", "run").code == 0
    assert "given to uiat.fit in memory: name a function that builds it, --model" in refused(capsys, "evaluate", "run")
    assert "uiat.fit" in refused(capsys, "train", "--resume", "run")
    assert "uiat.fit" in refused(capsys, "train", "run", "--model", "resnet8")


def test_images_of_a_run_are_those_it_was_trained_on(trained: Callable[[str], RunFolder], tmp_path: Path) -> None:
    found = uiat.images(trained("uiat").path)
    assert [len(part) for part in (found.train, found.validation, found.test)] == [60, 12, 40]
    assert len(uiat.images("digits").train) == 1295
    publish_run(trained("uiat").path, tmp_path / "published.json")
    for name in ("published.json", "published"):
        published = uiat.images(tmp_path / name)
        assert torch.equal(published.train.x, found.train.x)
        assert torch.equal(published.test.x, found.test.x)
    with pytest.raises(UserError, match="unknown data set 'digts'"):
        uiat.images("digts")


def test_more_epochs_extend_a_run(tmp_path: Path) -> None:
    y = torch.arange(40) % 2
    x = torch.rand(40, 1, 8, 8)
    options = {"train.schedule.name": "constant"}

    def train(out: str, epochs: int, **changes: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
        uiat.fit(model, (x, y), method="sat", epochs=epochs, out=tmp_path / out, **{"options": options} | changes)
        return load_file(tmp_path / out / "last.safetensors")

    whole = train("whole", 3)
    train("run", 2)
    extended = train("run", 3)
    assert all(torch.equal(tensor, extended[name]) for name, tensor in whole.items())
    train("cycle", 1, options={})
    with pytest.raises(UserError, match="onecycle"):
        train("cycle", 2, options={})
