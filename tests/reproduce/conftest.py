"""A folder in which everything was made once, at the tiny scale."""

from pathlib import Path

import pytest

from tests.reproduce.tiny import tiny_scale
from uiat.cli import main


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make all tables and figures."""
    out = tmp_path_factory.mktemp("reproduce") / "all"
    with tiny_scale(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("uiat.engine.files._sync", lambda path: None)  # thousands of waits for the disk
        assert main(["reproduce", "all", "--jobs", "0", "--out", str(out)]) == 0
    return out
