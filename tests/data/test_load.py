"""From a configuration to the three splits."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.test_npz import save
from tests.support import data_files as formats
from uiat.data import SOURCES, DataConfig, Images, load_splits
from uiat.errors import UserError


def rows(images: Images) -> set[bytes]:
    return {x.numpy().tobytes() for x in images.x}


def test_digits() -> None:
    splits = load_splits(DataConfig())
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (1295, 143, 359)
    assert splits.spec == splits.train.spec
    assert splits.spec.shape == (1, 8, 8)
    assert splits.spec.num_classes == 10
    values = torch.cat([splits.train.x, splits.validation.x, splits.test.x]).unique().tolist()
    assert values == [round(v * 255 / 16) for v in range(17)]
    assert splits.test.y.bincount().min() >= 34


def test_splits_are_fixed_and_disjoint(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", image=formats.pixels(200, 8, 8, 3), label=np.arange(200) % 4)
    one, other = load_splits(DataConfig(name=str(path))), load_splits(DataConfig(name=str(path)))
    assert (len(one.train), len(one.validation), len(one.test)) == (144, 16, 40)
    for a, b in ((one.train, other.train), (one.validation, other.validation), (one.test, other.test)):
        assert torch.equal(a.x, b.x)
        assert torch.equal(a.y, b.y)
    parts = [rows(one.train), rows(one.validation), rows(one.test)]
    assert len(parts[0] | parts[1] | parts[2]) == 200


def test_subset_size_and_validation() -> None:
    splits = load_splits(DataConfig(subset=500, test_subset=100, size=16, validation=50))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (450, 50, 100)
    assert splits.spec.shape == (1, 16, 16)
    assert splits.validation.y.bincount().tolist() == [5] * 10
    assert splits.test.x.shape == (100, 1, 16, 16)


def test_default_validation_is_at_most_1024(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", image=np.zeros((15_000, 8, 8), np.uint8), label=np.arange(15_000) % 2)
    assert len(load_splits(DataConfig(name=str(path))).validation) == 1024


def test_cifar_through_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    formats.cifar10(tmp_path, True)
    config = DataConfig(name="cifar10", download=False)
    assert load_splits(config, str(tmp_path)).spec.shape == (3, 32, 32)
    monkeypatch.setenv("UIAT_DATA", str(tmp_path))
    assert len(load_splits(config).train) == 90
    with pytest.raises(UserError, match=r"is not in .*other"):
        load_splits(config, str(tmp_path / "other"))  # the argument wins over the variable


def test_every_source_is_described() -> None:
    assert list(SOURCES) == ["digits", "cifar10", "cifar100", "cifar100-coarse", "svhn", "fashion-mnist"]
    assert all(source.description and "\n" not in source.description for source in SOURCES.values())


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (DataConfig(name="cifar"), "'cifar'.*'cifar10'"),
        (DataConfig(name="Digits"), "'Digits'.*'digits'"),
        (DataConfig(name="zzzzzz"), "zzzzzz.*cifar10, cifar100"),
        (DataConfig(name=""), "--data.*folder"),
        (DataConfig(name="/none/own.npz"), "/none/own.npz"),
        (DataConfig(name="~nobody_here/own.NPZ"), "~nobody_here"),
        (DataConfig(test="x.npz"), "digits.*test"),
        (DataConfig(subset=1439), "data.subset .*1439.*1438 "),
        (DataConfig(test_subset=360), "data.test_subset .*360.*359 "),
        (DataConfig(subset=1), "data.validation .*1 of 1 "),
        (DataConfig(validation=1438), "data.validation .*1438 of 1438"),
        (DataConfig(size=7), "cannot resize images to 7×7"),
    ],
)
def test_mistakes(config: DataConfig, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        load_splits(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"image": formats.pixels(20, 7, 8, 3)}, "the training set of .* 7×8 pixels"),
        ({"label": np.zeros(20, int)}, "fewer than two classes"),
        ({"image": formats.pixels(2, 8, 8), "label": [0, 1]}, "the test set of .* has no images"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, changes: dict[str, object], match: str) -> None:
    with pytest.raises(UserError, match=match):
        load_splits(DataConfig(name=str(save(tmp_path / "own.npz", **changes))))


def test_shapes_of_train_and_test_must_agree(tmp_path: Path) -> None:
    big, small = save(tmp_path / "a.npz", image=formats.pixels(20, 16, 16, 3)), save(tmp_path / "b.npz")
    with pytest.raises(UserError, match=r"3×16×16.*3×8×9"):
        load_splits(DataConfig(name=str(big), test=str(small)))
    assert load_splits(DataConfig(name=str(big), test=str(small), size=12)).spec.shape == (3, 12, 12)
    grey = save(tmp_path / "c.npz", image=formats.pixels(20, 16, 16))
    with pytest.raises(UserError, match=r"3×12×12.*1×12×12"):
        load_splits(DataConfig(name=str(big), test=str(grey), size=12))


def test_missing_test_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.npz"):
        load_splits(DataConfig(name=str(save(tmp_path / "a.npz")), test=str(tmp_path / "none.npz")))


def test_import_is_light() -> None:
    check = (
        "import sys, uiat.data; heavy = ('sklearn', 'scipy', 'pooch', 'requests', 'torchvision', 'PIL', 'datasets'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
