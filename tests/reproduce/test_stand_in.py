"""Stand-ins for generated images: made once, deterministic, from training images alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny import TINY
from uiat import data
from uiat.data.data_config import DataConfig, Generated
from uiat.reproduce import scales
from uiat.reproduce.scales import NOISE, STAND_IN_IMAGES, ensure_generated

PLAIN = DataConfig("digits", subset=80, validation=20, crop=0, flip=False)
STAND_IN = scales.stand_in_name(PLAIN)
CONFIG = replace(PLAIN, generated=Generated(STAND_IN, 0.3))


def test_it_is_made_once_and_the_same(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        ensure_generated(CONFIG, str(tmp_path / name))
        with np.load(tmp_path / name / STAND_IN) as found:
            contents.append((found["image"], found["label"]))
    assert np.array_equal(contents[0][0], contents[1][0])
    assert np.array_equal(contents[0][1], contents[1][1])
    before = (tmp_path / "a" / STAND_IN).stat().st_mtime_ns
    ensure_generated(CONFIG, str(tmp_path / "a"))
    assert (tmp_path / "a" / STAND_IN).stat().st_mtime_ns == before


def test_every_image_is_a_training_image_moved(tmp_path: Path) -> None:
    ensure_generated(CONFIG, str(tmp_path))
    splits = data.load_splits(CONFIG, str(tmp_path), training=True)
    assert splits.generated is not None
    assert len(splits.generated) == STAND_IN_IMAGES
    x, y = splits.generated.x[:20].int(), splits.generated.y[:20]
    for image, label in zip(x, y, strict=True):
        own = splits.train.x[splits.train.y == label].int()
        shifts = [own.roll((d, a), (2, 3)) for d in (-1, 0, 1) for a in (-1, 0, 1)]
        assert min(int((image - s).abs().amax(dim=(1, 2, 3)).min()) for s in shifts) <= NOISE


def test_its_name_tells_what_it_is_made_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scales.stand_in_name(CONFIG) == STAND_IN, "its own name is no part of it"
    names = {STAND_IN, scales.stand_in_name(replace(PLAIN, subset=90))}
    for number in ("STAND_IN_IMAGES", "SHIFT", "NOISE", "STAND_IN_SEED"):
        with monkeypatch.context() as patch:
            patch.setattr(scales, number, getattr(scales, number) + 1)
            names.add(scales.stand_in_name(PLAIN))
    assert len(names) == 6
    ensure_generated(replace(CONFIG, subset=90), str(tmp_path))
    assert not list(tmp_path.iterdir()), "no file of these digits under the name of others"


def test_other_files_are_not_touched(tmp_path: Path) -> None:
    ensure_generated(replace(CONFIG, generated=Generated("cifar10_ddpm.npz")), str(tmp_path))
    ensure_generated(replace(CONFIG, generated=Generated()), str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_only_the_network_that_is_trained_here_has_runs() -> None:
    assert TINY.generated("uiat", "CIFAR-10", "PRN-18") is not None
    assert TINY.generated("uiat", "CIFAR-10", "WRN-28-10") is None
