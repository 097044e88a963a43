"""A folder of pictures, and a place for its cache."""

from pathlib import Path

import pytest

from tests.support.data_files import fill


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with ten pictures of each of three classes."""
    return fill(tmp_path / "mine")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return where packed data sets are to be kept."""
    return tmp_path / "store"
