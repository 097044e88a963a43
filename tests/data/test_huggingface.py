"""Hugging Face data sets on disk: through their own library, and without it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.pictures import picture, read
from uiat.errors import UserError

REASON = "the package datasets (extra hf) is not installed; it brings 300 MB"


def library() -> Any:
    return pytest.importorskip("datasets", reason=REASON)


def table(count: int, **columns: Any) -> Any:
    datasets = library()
    content = {"image": [picture(k % 2, k, (12, 9)) for k in range(count)], "label": [k % 2 for k in range(count)]}
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    for name, (values, kind) in columns.items():
        content[name], kinds[name] = values, kind
    return datasets.Dataset.from_dict(content, features=datasets.Features(kinds))


def test_a_single_table(tmp_path: Path) -> None:
    table(40).save_to_disk(tmp_path / "saved")
    splits = read(tmp_path / "saved", tmp_path / "store")
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [29, 3, 8]
    assert splits.spec.shape == (3, 9, 12)
    assert splits.train.classes == ("cat", "dog")
    pixels = {np.asarray(picture(k % 2, k, (12, 9))).transpose(2, 0, 1).tobytes(): k % 2 for k in range(40)}
    for part in (splits.train, splits.validation, splits.test):
        assert [pixels[x.numpy().tobytes()] for x in part.x] == part.y.tolist()


def test_splits_of_its_own_and_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"train": table(20), "validation": table(6), "test": table(4)}
    library().DatasetDict(parts).save_to_disk(tmp_path / "saved")
    splits = read(tmp_path / "saved", tmp_path / "store")
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [20, 6, 4]
    monkeypatch.setattr("uiat.data.packing.pixels", None)
    assert len(read(tmp_path / "saved", tmp_path / "store").train) == 20


def test_mistakes(tmp_path: Path) -> None:
    datasets = library()
    table(8, other=(list("abcdefgh"), datasets.Value("string"))).remove_columns("image").save_to_disk(tmp_path / "a")
    with pytest.raises(UserError, match="has no column with an image: keep one, called image"):
        read(tmp_path / "a", tmp_path / "store")
    table(8).remove_columns("label").save_to_disk(tmp_path / "b")
    with pytest.raises(UserError, match="has no column with a class label: keep one, called label"):
        read(tmp_path / "b", tmp_path / "store")
    datasets.DatasetDict({"train": table(8), "extra": table(8)}).save_to_disk(tmp_path / "c")
    with pytest.raises(UserError, match="has the splits train, extra: keep one each"):
        read(tmp_path / "c", tmp_path / "store")


def test_without_the_library_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    code = (
        "import sys; sys.modules['datasets'] = None; from uiat.cli import main; "
        f"sys.exit(main(['train', '--data', {str(tmp_path)!r}, '--out', {str(tmp_path / 'run')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.endswith("the package datasets is not installed: pip install 'uiat[hf]'.\n")
