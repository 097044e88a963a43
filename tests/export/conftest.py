"""A local stand-in for the Hub, for tests in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hub import TOKEN, StandIn, stand_in


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Serve a stand-in for the Hub; the package uses only this one, and keeps its cache in the test's folder."""
    package = pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    with stand_in() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.address)
        template = f"{served.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its threads would outlive the test
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        package.logging.set_verbosity_error()  # it keeps the stderr of the test that imports it first
        monkeypatch.chdir(tmp_path)
        yield served
        package.close_session()
