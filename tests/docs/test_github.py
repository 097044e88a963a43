"""Workflow, hooks and templates for contributors: they name targets, versions and commands that exist."""

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.processes import ROOT
from tools import test_versions

GITHUB = ROOT / ".github"
FORMS = sorted(GITHUB.glob("ISSUE_TEMPLATE/*.yml"))


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def test_the_workflow_covers_the_supported_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    supported = [line.rpartition(" ")[2] for line in project["classifiers"] if line.startswith(prefix)]
    jobs = read(GITHUB / "workflows" / "test.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == supported == list(test_versions.PYTHONS)
    assert [step["run"] for step in jobs["test"]["steps"] if "run" in step] == [".ci/run", "make types-macos"]
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").rstrip().endswith("exec make test")
    pairs = [(row["python"], row["torch"]) for row in jobs["versions"]["strategy"]["matrix"]["include"]]
    assert pairs == [(supported[0], "oldest"), *((minor, "newest") for minor in supported)]
    command = jobs["versions"]["steps"][-1]["run"].split()
    assert command[:2] == ["python", "tools/test_versions.py"]
    assert (ROOT / command[1]).is_file()


def test_its_selection_of_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str]] = []
    passed_on: list[list[str]] = []

    def test(self: test_versions.Environment, more: list[str]) -> list[str]:
        made.append((self.minor, self.torch))
        passed_on.append(more)
        return [self.minor, self.torch, "", "1", "0", "0"]

    monkeypatch.setattr(test_versions, "interpreter", lambda minor: Path("python"))
    monkeypatch.setattr(test_versions, "newest", lambda python: "9.9")
    monkeypatch.setattr(test_versions.Environment, "make", lambda self: None)
    monkeypatch.setattr(test_versions.Environment, "test", test)
    oldest, first = test_versions.OLDEST[0], test_versions.PYTHONS[0]
    every = [(first, oldest), *((minor, "9.9") for minor in test_versions.PYTHONS)]
    for args, expected in {
        (): every,
        ("--torch", "newest", "--python", "3.12"): [("3.12", "9.9")],
        ("--torch", "oldest"): every[:1],
    }.items():
        made.clear()
        assert test_versions.main([*args, "-n", "4"]) == 0
        assert made == expected
    assert all(more == ["-n", "4"] for more in passed_on)


def test_the_hooks_are_the_programs_of_make_lint() -> None:
    (local,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    programs = [hook["entry"].split()[0] for hook in local["hooks"]]
    assert programs == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]
    assert {Path(program).name for program in programs} <= pinned
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    ruff = shutil.which("ruff")
    if ruff is not None:
        for hook in local["hooks"][:2]:
            args = [ruff, *hook["entry"].split()[1:], str(Path(__file__))]
            assert subprocess.run(args, cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_issue_forms_ask_for_the_environment() -> None:
    assert {path.stem for path in FORMS} == {"bug", "question", "config"}
    for path in FORMS:
        form = read(path)
        if path.stem != "config":
            assert {"name", "description", "body"} <= set(form)
            ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
            assert len(ids) == len(set(ids))
            assert any("uiat env" in field["attributes"].get("label", "") for field in form["body"])
