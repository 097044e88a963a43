"""A folder in which everything was made once, at the tiny scale."""

from pathlib import Path

import pytest

from tests.reproduce.tiny import tiny_scale
from uiat.cli import main


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make all tables and figures."""
    out = tmp_path_factory.mktemp("reproduce") / "all"
    with tiny_scale():
        assert main(["reproduce", "all", "--jobs", "0", "--out", str(out)]) == 0
    return out
