"""A folder with all tables and figures, made once at a tiny scale."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tiny import tiny_scale
from uiat.cli import main


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Use another folder than the user's data folder."""
    with pytest.MonkeyPatch.context() as patch:
        base = tmp_path_factory.getbasetemp()
        folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "reproduce-data"
        patch.setenv("UIAT_DATA", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def quick() -> Iterator[None]:
    """Skip what costs time and matters only when a machine loses power, and the calls of git."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("uiat.io.sync", lambda path: None)
        patch.setattr("uiat.runs.result_card._commit", lambda: "c" * 40)
        yield


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make all tables and figures; several processes of the tests share the work, as any commands on one folder do."""
    shared = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if shared else base) / "reproduce-all"
    with tiny_scale():
        assert main(["reproduce", "all", "--jobs", "0", "--out", str(out)]) == 0
    return out
