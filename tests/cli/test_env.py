"""`uiat env`: versions and hardware, as text and as JSON."""

import json
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

import uiat
from tests.support.calls import call, refused
from tests.support.processes import ROOT, run_uiat
from uiat.cli import env


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = call(capsys, "env", "--json")
    assert found.code == 0
    facts = json.loads(found.out)
    known = {"uiat": uiat.__version__, "torch": torch.__version__, "numpy": np.__version__}
    assert facts["versions"].items() >= known.items()
    assert facts["versions"]["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert (facts["threads"], facts["kernels"]) == (torch.get_num_threads(), torch.backends.cpu.get_cpu_capability())
    assert len(facts["gpus"]) == torch.cuda.device_count()
    assert facts["cpu"]
    assert facts["cores"] >= 1


def test_optional_packages_are_those_of_users() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (every,) = extras["all"]
    users = [*every.removeprefix("uiat[").removesuffix("]").split(","), "timm", "transformers", "loops"]
    names = [re.match(r"[\w-]+", line) for extra in users for line in extras[extra]]
    assert list(env.OPTIONAL) == [name[0] for name in names if name and name[0] != "uiat"]


def test_text_says_what_is_missing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "package_version", lambda name: None if name == "onnx" else "9.9")
    monkeypatch.setattr(env, "CPU_INFO", Path("/no/such/file"))
    found = call(capsys, "env")
    assert [line.partition(":")[0] for line in found.out.splitlines()] == list(env.describe_environment())
    assert "onnx (missing)" in found.out
    assert "tyro 9.9" in found.out


def test_help_and_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "env", "--help").out.startswith("usage: uiat env")
    assert "--jsn" in refused(capsys, "env", "--jsn")


def test_it_needs_no_optional_package(tmp_path: Path) -> None:
    """As in an installation of the plug-in alone."""
    absent = ("tyro", "tqdm", "matplotlib", "sklearn", "scipy", "jinja2")
    code, out = run_uiat(tmp_path / "log", "env", without=absent)
    assert code == 0, out
    assert f"torch {torch.__version__}" in out
