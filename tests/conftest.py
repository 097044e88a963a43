"""What tests of several folders share.

Tests run beside each other on few cores: one thread each is faster than many that wait for one another.
"""

import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.support.runs import begin, tiny
from uiat.runs.run_folder import RunFolder

torch.set_num_threads(1)
# No example is too slow on a busy machine, and all machines see the same ones.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.fixture(autouse=True)
def no_wait_for_the_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync, which takes long; only tests of faults depend on it."""
    if "faults" not in request.path.parts:
        monkeypatch.setattr("uiat.io.sync", lambda path: None)
        monkeypatch.setattr("uiat.data.packed.sync", lambda path: None)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Return a finished run of UIAT, to be read only."""
    return begin(tiny("uiat"), tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def run_copy(finished_run: RunFolder, tmp_path: Path) -> RunFolder:
    """Return a copy of it, to be damaged."""
    return RunFolder.open(shutil.copytree(finished_run.path, tmp_path / "run"))
