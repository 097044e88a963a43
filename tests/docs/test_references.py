"""Files, classes, functions, flags and links in the documentation exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.documents import PAGES, known_flags, prose, quoted
from tests.support.processes import ROOT
from uiat.export.exported_folder import FILES

METHOD = ROOT / "docs" / "method.md"
DECISIONS = ROOT / "docs" / "decisions.md"
PYTHON = re.compile(r"([\w/]+\.py)(?::([\w.]+))?")


def source(path: str) -> Path:
    """Return the file of a path, from the root or below src/uiat."""
    return next((at for at in (ROOT / path, ROOT / "src" / "uiat" / path) if at.is_file()), Path())


def names(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Return the names that a module defines: functions, classes, their methods and fields, constants."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            found |= names(node.body, f"{prefix}{node.name}.")
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(prefix + node.target.id)
        if isinstance(node, ast.Assign):
            found |= {prefix + target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def mentions(page: Path) -> list[tuple[str, str]]:
    matches = [PYTHON.fullmatch(text) for text in quoted(page)]
    return sorted({(match[1], match[2] or "") for match in matches if match})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_file_and_name_exists(page: Path) -> None:
    for path, name in mentions(page):
        if path in FILES:
            continue  # of an export
        file = source(path)
        assert file.is_file(), f"{page.name} names {path}, which is not there"
        if name:
            defined = names(ast.parse(file.read_text(encoding="utf-8")).body)
            assert name in defined, f"{page.name} names {name}, which {path} does not define"


def test_a_wrong_name_would_be_noticed() -> None:
    assert not source("targets/nowhere.py").is_file()
    defined = names(ast.parse(source("targets/universal.py").read_text(encoding="utf-8")).body)
    assert "UniversalInverseTarget.prepare" in defined
    assert "UniversalInverseTarget.prepared" not in defined


def test_no_page_installs_from_an_index() -> None:
    """uiat is not on PyPI: it is installed from a clone or a wheel."""
    files = [*PAGES, *(ROOT / "examples").iterdir(), *(ROOT / "src").rglob("*.py"), *(ROOT / "tools").glob("*.py")]
    advice = re.compile(r"pip install [^`\n]*?\buiat(\[\w+\])?(?![\w\[-]| @ )")
    texts = {file: file.read_text(encoding="utf-8") for file in files if file.is_file()}
    assert [(file.name, found[0]) for file, text in texts.items() if (found := advice.search(text))] == []
    assert advice.search("pip install 'uiat[all]'")
    assert advice.search("%pip install uiat ipywidgets")


@pytest.mark.parametrize("label", [*(f"{k}" for k in range(1, 9)), *(f"S{k}" for k in range(1, 6))])
def test_every_equation_has_a_row_with_code(label: str) -> None:
    part = METHOD.read_text(encoding="utf-8").split("## Equations")[1].split("\n## ")[0]
    row = next((line for line in part.splitlines() if line.startswith(f"| {label} |")), "")
    assert PYTHON.search(row.split(" | ")[-1]), f"equation {label} has no code"


@pytest.mark.parametrize(("title", "lines"), [("## Algorithm 1", 17), ("## Algorithm S1", 15)])
def test_every_line_of_the_algorithms_has_a_row(title: str, lines: int) -> None:
    part = METHOD.read_text(encoding="utf-8").split(title)[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \|", part, re.MULTILINE)
    assert [int(k) for row in rows for k in row.split(",")] == list(range(1, lines + 1))


def test_every_flag_exists() -> None:
    known = known_flags()
    mentioned = {text.split()[0] for page in PAGES for text in quoted(page) if text.startswith("--")}
    assert mentioned
    assert mentioned <= known, f"no such flags: {sorted(mentioned - known)}"


def test_decisions_are_numbered_and_complete() -> None:
    text = DECISIONS.read_text(encoding="utf-8")
    entries = re.split(r"^### ", text.split("\n## Dependencies")[0], flags=re.MULTILINE)[1:]
    assert [int(entry.split(".")[0]) for entry in entries] == list(range(1, len(entries) + 1))
    for entry in entries:
        assert all(f"- {word}: " in entry for word in ("Default", "Option", "Why")), entry.splitlines()[0]


def test_every_dependency_has_a_reason() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lists = re.findall(r"^(?:dependencies|test|lint) = \[(.*?)\]$", project, re.DOTALL | re.MULTILINE)
    packages = {name for part in lists for name in re.findall(r'"([\w-]+)', part)}
    table = DECISIONS.read_text(encoding="utf-8").split("\n## Dependencies")[1]
    first = " ".join(line.split(" | ")[0] for line in table.splitlines() if line.startswith("| "))
    assert len(packages) > 10
    assert packages <= set(re.findall(r"[\w-]+", first)), packages - set(re.findall(r"[\w-]+", first))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", prose(page)):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"
