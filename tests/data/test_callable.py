"""Data sets given as `--data module:callable`: supported items, the cache, and errors."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support import data_files as formats
from tests.support.calls import call, missing_facts, refused
from tests.support.data_files import packed, picture
from uiat.data import DataConfig, Splits, load_splits
from uiat.errors import UserError
from uiat.plugins import import_from

PIXELS = formats.pixels(30, 9, 12, 3)
LABELS = np.arange(30) % 3
SMALL = ["--train.epochs", "1", "--validate.steps", "1", "--model.width", "2"]
_numbers = itertools.count()


class Pairs:
    """Images and labels, as a user would write it."""

    def __init__(self, images: Any, labels: Any = LABELS, classes: Any = None):
        self.images, self.labels = images, labels
        if classes is not None:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[index], self.labels[index]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def named(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], Any]], str]:
    """Return a function that names a loader: a module whose file never changes."""

    def name(loader: Callable[[str], Any]) -> str:
        module = f"given_{next(_numbers)}"
        (here / f"{module}.py").write_text("def load(split):\n    return loader(split)\n")
        import_from(here, module, "a test")
        monkeypatch.setattr(sys.modules[module], "loader", loader, raising=False)
        return f"{module}:load"

    return name


def read(name: str, store: Path, **changes: Any) -> Splits:
    return load_splits(DataConfig(name=name, **changes), str(store))


def test_splits_and_pixels(named: Any, store: Path) -> None:
    name = named(lambda split: Pairs(PIXELS if split == "train" else PIXELS[:6]))
    splits = read(name, store)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [27, 3, 6]
    assert splits.spec.shape == (3, 9, 12)
    assert splits.train.classes == ("0", "1", "2")
    known = {image.transpose(2, 0, 1).tobytes(): int(y) for image, y in zip(PIXELS, LABELS, strict=True)}
    for part in (splits.train, splits.validation, splits.test):
        assert [known[x.numpy().tobytes()] for x in part.x] == part.y.tolist()
    np.testing.assert_array_equal(splits.test.x.numpy(), PIXELS[:6].transpose(0, 3, 1, 2))


def test_without_a_test_split_some_are_held_out(named: Any, store: Path) -> None:
    name = named(lambda split: Pairs(PIXELS) if split == "train" else None)
    splits = read(name, store, test_fraction=0.3)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [19, 2, 9]


FORMS: dict[str, Any] = {
    "PIL": [Image.fromarray(x) for x in PIXELS],
    "array": PIXELS,
    "floats": (PIXELS / 255).astype(np.float32),
    "tensor": torch.from_numpy(PIXELS).permute(0, 3, 1, 2),
    "float tensor": torch.from_numpy(PIXELS).permute(0, 3, 1, 2) / 255,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("label", [int, np.int64, np.uint8, torch.tensor])
def test_all_forms_are_the_same_bytes(form: str, label: Any, named: Any, store: Path) -> None:
    name = named(lambda split: Pairs(FORMS[form], [label(int(y)) for y in LABELS]))
    np.testing.assert_array_equal(read(name, store).test.x.numpy(), PIXELS.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("grey", [PIXELS[..., 0], PIXELS[..., :1], torch.from_numpy(PIXELS[:, None, :, :, 0])])
def test_grey_images_have_one_channel(grey: Any, named: Any, store: Path) -> None:
    found = read(named(lambda split: Pairs(grey)), store)
    assert found.spec.shape == (1, 9, 12)
    np.testing.assert_array_equal(found.test.x[:, 0].numpy(), PIXELS[..., 0])


def test_a_list_of_pairs_is_a_data_set(named: Any, store: Path) -> None:
    found = read(named(lambda split: list(zip(PIXELS, LABELS, strict=True))), store)
    np.testing.assert_array_equal(found.test.x.numpy(), PIXELS.transpose(0, 3, 1, 2))


def test_names_of_classes(named: Any, store: Path) -> None:
    classes = ["ant", "bee", "cat", "never seen"]
    found = read(named(lambda split: Pairs(PIXELS, classes=classes)), store)
    assert found.train.classes == tuple(classes)
    other = named(lambda split: Pairs(PIXELS, classes=classes if split == "train" else classes[::-1]))
    with pytest.raises(UserError, match=r"`classes` .*'test' .*'train'"):
        read(other, store)


def test_sizes_are_treated_as_in_a_folder(named: Any, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = [picture(k % 3, k, (12, 9) if k else (20, 20)) for k in range(30)]
    name = named(lambda split: Pairs(mixed))
    assert read(name, store).spec.shape == (3, 9, 12)
    assert "have 2 sizes; all are resized to 9×12" in " ".join(capsys.readouterr().err.split())
    assert read(name, store, size=(16, 10)).spec.shape == (3, 16, 10)
    assert len(packed(store)) == 2


def test_it_is_packed_once_and_again_when_it_changes(
    named: Any, store: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {"x": PIXELS}
    name = named(lambda split: Pairs(content["x"]))
    before = read(name, store)
    (first,) = packed(store)
    assert first.name.startswith("given_")
    with monkeypatch.context() as patch:
        patch.setattr("uiat.data.packing.to_pixels", None)
        after = read(name, store)
    assert torch.equal(before.train.x, after.train.x)
    content["x"] = 255 - PIXELS
    read(name, store)
    (second,) = packed(store)
    module = here / f"{name.partition(':')[0]}.py"
    module.write_text(module.read_text() + "# another version\n")
    read(name, store)
    assert len({first, second, *packed(store)}) == 3


class Broken(Pairs):
    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index == 17:
            raise RuntimeError("the disk is on fire")
        return super().__getitem__(index)


class Rows(Pairs):
    """As a data set of Hugging Face: rows, and features that know the names of the classes."""

    def __init__(self, keys: tuple[str, ...] = ("image", "label"), names: Any = None):
        super().__init__([Image.fromarray(x) for x in PIXELS])
        self.keys = keys
        self.features = {keys[0]: object(), keys[-1]: SimpleNamespace(names=names)}

    def __getitem__(self, index: int) -> Any:
        return dict.fromkeys(self.keys, self.images[index]) | {self.keys[-1]: int(self.labels[index])}


@pytest.mark.parametrize(
    "keys", [("image", "label"), ("img", "label"), ("image", "path", "label"), ("pixel_values", "labels"), ("x", "y")]
)
@pytest.mark.parametrize("names", [["ant", "bee", "cat"], None])
def test_rows_of_hugging_face(keys: tuple[str, ...], names: Any, named: Any, store: Path) -> None:
    found = read(named(lambda split: Rows(keys, names)), store)
    np.testing.assert_array_equal(found.test.x.numpy(), PIXELS.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(found.test.y.numpy(), LABELS)
    assert found.train.classes == tuple(names or ("0", "1", "2"))


class Random(Pairs):
    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[index][:: int(np.random.default_rng().choice([1, -1]))], 0


WRONG: dict[str, Any] = {
    "{} train TypeError generator": lambda _: (k for k in range(3)),
    "{} test KeyError": lambda split: {"train": Pairs(PIXELS)}[split],
    "{} train images": lambda _: [],
    "{} train TypeError int": lambda _: 3,
    "0 {} train Image label dict": lambda _: Rows().images,
    "{} img fine_label image label": lambda _: Rows(("img", "fine_label")),
    "{} image img label": lambda _: Rows(("image", "img", "label")),
    "0 {} train str PIL": lambda _: Pairs(["a"] * 30),
    "{} '(3, 9, 12)' array": lambda _: Pairs(PIXELS.transpose(0, 3, 1, 2)),
    "{} '(9, 12, 3)' array": lambda _: Pairs(torch.from_numpy(PIXELS)),
    "{} int64 uint8 floats": lambda _: Pairs(PIXELS.astype(int)),
    "{} pixel 255 0 1": lambda _: Pairs(PIXELS.astype(float)),
    "{} NaN pixels": lambda _: Pairs(np.full((30, 9, 9), np.nan)),
    "{} label str integer": lambda _: Pairs(PIXELS, ["cat"] * 30),
    "{} label float integer": lambda _: Pairs(PIXELS, [1.0] * 30),
    "{} label -1 0 classes": lambda _: Pairs(PIXELS, [-1] * 30),
    "train/2 label '2 classes'": lambda _: Pairs(PIXELS, classes=["a", "b"]),
    "{} different pixels train": lambda _: Random(PIXELS),
    "{} RuntimeError 'disk is on fire'": lambda _: Broken(PIXELS),
}


@pytest.mark.parametrize("facts", WRONG)
def test_invalid_data_sets_give_one_message(facts: str, named: Any, store: Path) -> None:
    name = named(WRONG[facts])
    with pytest.raises(UserError) as caught:
        read(name, store)
    assert missing_facts(str(caught.value), facts.format(name)) == []
    assert "\n" not in str(caught.value)
    assert packed(store) == []


def test_damaged_images_are_named_as_in_a_folder(named: Any, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uiat.data.custom._PROBES", 2)
    name = named(lambda _: Broken(PIXELS))
    with pytest.raises(UserError, match=r"^2 .*:load .*train/17 .*RuntimeError: the disk"):
        read(name, store)
    assert packed(store) == []


def test_names_that_lead_nowhere(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "has_nothing.py").write_text("x = 1\n")
    message = refused(capsys, "train", "--data", "not_there:load")
    assert missing_facts(message, "import '--data not_there:load'") == []
    message = refused(capsys, "train", "--data", "has_nothing:load")
    assert missing_facts(message, "callable '--data has_nothing:load'") == []
    args = ("train", "--data", "has_nothing:load", "--data.test", "a.npz")
    assert missing_facts(refused(capsys, *args), "has_nothing:load test") == []


@pytest.mark.parametrize("command", [["train", "--data"], ["data", "info"], ["data", "pack"]])
def test_formats_that_were_read_before(command: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "saved").mkdir()
    (here / "saved" / "dataset_dict.json").write_text("{}")
    message = refused(capsys, *command, "saved")
    assert "saved is a Hugging Face data set" in message
    assert "--data module:callable (docs/data.md" in message
    if command != ["data", "pack"]:
        np.save(here / "x_train.npy", PIXELS)
        message = refused(capsys, *command, "x_train.npy")
        assert "x_train.npy is an .npy file" in message
        assert "--data module:callable (docs/data.md" in message


CODE = """
import numpy as np

class Noise:
    classes = ["a", "b", "c"]

    def __init__(self, split):
        self.offset = 1000 * (split == "test")

    def __len__(self):
        return 40

    def __getitem__(self, k):
        image = np.random.default_rng(self.offset + k).integers(0, 90, (8, 9, 3), dtype=np.uint8)
        image[:, :, k % 3] += 150
        return image, k % 3
"""


def test_through_the_commands(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UIAT_DATA", str(here / "store"))
    monkeypatch.setenv("COLUMNS", "200")
    (here / "noise_data.py").write_text(CODE)
    found = call(capsys, "data", "info", "noise_data:Noise")
    assert found.code == 0
    assert "3 classes, 3 × 8 × 9" in found.out
    assert call(capsys, "train", "--data", "noise_data:Noise", *SMALL, "--out", "run").code == 0
    named = ("--data", "noise_data:Noise")
    assert call(capsys, "evaluate", "run", *named, "--attacks", "natural").code == 0
    assert call(capsys, "train", "--resume", "run", *named).code == 0
    found = call(capsys, "data", "pack", "noise_data:Noise")
    assert found.out == "packed; next: uiat train --data noise_data-Noise-packed\n"
    assert call(capsys, "train", "--resume", "run", "--data", "noise_data-Noise-packed").code == 0
    assert call(capsys, "train", "--resume", "run", *named).code == 0
    (here / "noise_data.py").write_text(CODE.replace("+= 150", "+= 149"))
    monkeypatch.delitem(sys.modules, "noise_data")
    message = call(capsys, "train", "--resume", "run", *named).err.splitlines()[-1]
    assert "the data noise_data:Noise has changed since" in message
