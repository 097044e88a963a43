"""The environment in a result card."""

import platform
import subprocess

import pytest
import torch

from uiat.runs import result_card


def test_the_environment() -> None:
    found = result_card.environment("cpu")
    assert found["versions"]["python"] == platform.python_version()
    assert {"uiat", "torch", "numpy", "safetensors"} <= found["versions"].keys()
    assert found["device"] == f"cpu ({platform.machine()})"
    assert found["threads"] == torch.get_num_threads()
    commit = found["git_commit"]
    assert commit is None or (len(commit) == 40 and int(commit, 16) >= 0)


def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_card, "RECORDED_PACKAGES", ("torch", "no-such-package"))
    assert result_card.environment("cpu")["versions"].keys() == {"python", "torch"}


def test_no_git_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **options: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)
    assert result_card.environment("cpu")["git_commit"] is None
