"""A folder of images, and a folder for its cache."""

from pathlib import Path

import pytest

from tests.support.data_files import fill


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with ten pictures of each of three classes."""
    return fill(tmp_path / "mine")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return the folder for packed data sets."""
    return tmp_path / "store"
