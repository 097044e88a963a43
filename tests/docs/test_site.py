"""The site of `make docs`, built with a stub for the demo report: complete, strict and self-contained."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import uiat
from tests.support.processes import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
REPORT = "<!doctype html><title>A report</title><p>the report itself"
API = ROOT / "docs" / "api.md"


class Page(HTMLParser):
    """The anchors, resources and links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.loads += [values["src"]] if "src" in values else []
        if "href" in values:
            (self.leads if tag == "a" else self.loads).append(values["href"])


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site into `folder`/site, strictly."""
    (folder / "report.html").write_text(REPORT, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder / "site")],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "UIAT_SITE_REPORT": str(folder / "report.html")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout
    assert [line for line in done.stdout.splitlines() if not line.startswith("INFO")] == []
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name not in ("404.html", "report.html")}


def test_every_public_name_is_in_the_reference(pages: dict[Path, Page], site: Path) -> None:
    shown = re.findall(r"^::: uiat\.(\w+)$", API.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(shown) == sorted(uiat.__all__)
    assert {f"uiat.{name}" for name in uiat.__all__} <= pages[site / "api.html"].anchors
    text = (site / "api.html").read_text(encoding="utf-8")
    inherited = "where p is the prediction on the inverse adversarial example"  # in an inherited field
    assert text.count(inherited) == 3
    assert "optional_in_key" not in text
    assert "<blockquote>" not in text, "examples are code"


def test_every_page_is_there_and_can_be_searched(pages: dict[Path, Page], site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].split("#")[0] for entry in index["docs"]}
    assert found == {path.relative_to(site).as_posix() for path in pages}
    expected = {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    expected |= {f"examples/{path.stem}.html" for path in (ROOT / "examples").glob("*.py")}
    assert found == expected | {"index.html", "contributing.html", "changelog.html"}
    assert (site / "search" / "search_index.js").is_file()


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page], site: Path) -> None:
    loads = [load for page in pages.values() for load in page.loads if ":" in load or "//" in load]
    assert loads == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles)


def test_the_fonts_of_equations_are_there_and_only_pages_with_equations_load_them(site: Path) -> None:
    folder = site / "site" / "katex"
    fonts = set(re.findall(r"url\(([^)]+)\)", (folder / "katex.min.css").read_text(encoding="utf-8")))
    assert fonts == {path.relative_to(folder).as_posix() for path in folder.glob("fonts/*")} != set()
    loading = [path.name for path in site.rglob("*.html") if "katex.min.js" in path.read_text(encoding="utf-8")]
    assert loading == ["method.html"]


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    """Also links in raw HTML, which MkDocs does not check."""
    dead = []
    for path, page in pages.items():
        for lead in page.leads + page.loads:
            name, _, anchor = lead.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not re.match(r"https?:", lead) and not (
                target.is_file() and (not anchor or target not in pages or anchor in pages[target].anchors)
            ):
                dead.append(f"{path.name}: {lead}")
    assert dead == []


def test_the_report_is_shown(pages: dict[Path, Page], site: Path) -> None:
    assert (site / "report.html").read_text(encoding="utf-8") == REPORT
    page = pages[site / "demo.html"]
    assert "report.html" in page.loads
    assert "report.html" in page.leads


def test_the_notebook_is_shown_with_its_outputs(pages: dict[Path, Page], site: Path) -> None:
    page = pages[site / "examples" / "friend_or_enemy.html"]
    pictures = [load for load in page.loads if load.endswith(".png")]
    assert pictures == [f"friend_or_enemy-{k}.png" for k in range(1, 6)]
    assert all((site / "examples" / name).read_bytes().startswith(b"\x89PNG") for name in pictures)


def test_links_of_the_repository_become_links_of_the_site(pages: dict[Path, Page], site: Path) -> None:
    assert {"plugin.html", "contributing.html", "examples/plug_in.html"} <= set(pages[site / "index.html"].leads)
    assert {"pictures/friend-to-enemy.png", "pictures/slider.png"} <= set(pages[site / "index.html"].loads)
    assert "examples/plug_in.html" in pages[site / "plugin.html"].leads
    assert "examples/friend_or_enemy.html" in pages[site / "method.html"].leads  # through the notebook
    assert "<code>LICENSE</code>" in (site / "index.html").read_text(encoding="utf-8")


def test_lists_and_intervals_of_the_results(site: Path) -> None:
    """Comparisons stand under their claim, as on GitHub, and no interval in a table is broken."""
    text = (site / "results.html").read_text(encoding="utf-8")
    assert text.count("<li>UIAT is faster than IAT (Table 2).<ul>") == 1
    cells = re.findall(r"<td[^\n]*\]</td>", text)
    assert len(cells) > 50
    assert not any(", " in cell.rpartition("[")[2] for cell in cells)


def test_a_dead_link_a_missing_anchor_and_a_page_outside_the_menu_end_the_build(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    new = "# New\n\n[a](nowhere.md), [b](cli.md#nothing), [c](../CITATION.txt), [d](../README.md), [e](../LICENSE)\n"
    (tmp_path / "docs" / "new.md").write_text(new, encoding="utf-8")
    config = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(tmp_path / "docs"),
        "hooks": [str(ROOT / "tools" / "site_hooks.py")],
        "plugins": ["search"],
    }
    (tmp_path / "mkdocs.yml").write_text(json.dumps(config), encoding="utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path)
    assert done.returncode == 1
    warnings = [line for line in done.stdout.splitlines() if "WARNING" in line or "  - " in line]
    for name in ("'nowhere.md'", "'cli.md#nothing'", "'../CITATION.txt'", "- new.md"):
        assert any(name in line for line in warnings), f"no warning about {name}: {done.stdout}"
    assert not any("README" in line or "LICENSE" in line for line in warnings)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser is driven")
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


# The event loop of playwright leaves files to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("width", [1280, 390])
def test_it_works_from_the_disk_with_the_network_off(browser: Any, site: Path, width: int) -> None:
    """No page is too wide or requests anything, the search finds a page, the frame holds the report."""
    context = browser.new_context(offline=True, viewport={"width": width, "height": 900})
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if request.url[:4] == "http" else None)
    for name in ("demo", "method", "api", "decisions", "index"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        if name == "demo":
            assert page.frame_locator("iframe.report").locator("p").inner_text() == "the report itself"
        if name == "method":
            equations = page.locator(".arithmatex")
            assert equations.count() > 20
            assert equations.locator(".katex-html").count() == equations.count()
            assert page.locator(".katex-error").count() == 0
            assert page.evaluate("document.fonts.check('16px KaTeX_Math')")
    if width < 1000:
        page.locator(".md-header__button[for=__search]").click()
    page.locator("input.md-search__input").press_sequentially("catastrophic overfitting")
    page.locator(".md-search-result__item a", has_text="Decisions").first.wait_for(timeout=120_000)
    assert complaints == []
    context.close()
