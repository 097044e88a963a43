"""MkDocs hooks of `make docs`: pages from files outside docs/, links to them, equations, and the demo report."""

import re
from base64 import b64decode
from pathlib import Path
from posixpath import dirname, relpath

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = {f"examples/{path.name}": f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.py")}
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", **EXAMPLES}
"""Files of the repository outside docs/, and the page generated from each."""
SOURCES = {page: source for source, page in PAGES.items()}
FENCED = re.compile(r"(^(?:```|~~~~).*?^(?:```|~~~~)$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r'(?:\[(?P<text>[^\]]*)\]\(|src=")(?P<path>[^)#":\s]+)(?P<anchor>#[^)\s]*)?[)"]')
NESTED = re.compile(r"^  (?=- )", re.MULTILINE)
"""A list within a list, as on GitHub; Python-Markdown wants four spaces."""
INTERVAL = re.compile(r"(?<=<td)([^\n]*\[[-+−]?[\d.]+), ([-+−]?[\d.]+\]</td>)")
"""An interval at the end of a cell, which is not broken between two lines."""
REPORT = """<a class="md-button" href="report.html" target="_blank">Open the report in a new tab</a>

<iframe class="report" src="report.html" title="Demo report"></iframe>
"""
MATH = """<link rel="stylesheet" href="{site}/katex/katex.min.css">
<script src="{site}/katex/katex.min.js"></script>
<script src="{site}/math.js"></script>
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ as pages, and the report beside them."""
    report = ROOT / config.extra["report"]
    if not report.is_file():
        raise PluginError(f"no report at {report}: run `make demo` (`make docs` does so if it is missing).")
    files.append(File.generated(config, "report.html", abs_src_path=str(report)))
    for source, page in PAGES.items():
        path = ROOT / source
        text, pictures = as_notebook(path) if path.with_suffix(".ipynb").exists() else (as_page(path), {})
        files.append(File.generated(config, page, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
        for name, content in pictures.items():
            files.append(File.generated(config, f"{dirname(page)}/{name}", content=content))
    return files


def as_page(path: Path) -> str:
    """Return a file as Markdown: a script as one block of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    name = path.relative_to(ROOT).as_posix()
    return f"---\nhide: [toc]\n---\n\n# {path.name}\n\n`{name}`\n\n~~~~python\n{text}~~~~\n"


def as_notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return the notebook of a script as Markdown: text, code and outputs; and its pictures, by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    made = nbformat.read(path.with_suffix(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
    for cell in made.cells:
        code = cell.cell_type == "code"
        parts.append(f"~~~~python\n{cell.source}\n~~~~" if code else cell.source)
        for output in cell.outputs if code else ():
            if "text" in output:
                parts.append(f"~~~~text\n{output.text}~~~~")
            elif "image/png" in output.data:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = b64decode(output.data["image/png"])
                parts.append(f"![Figure {len(pictures)}]({name})")
    return "\n\n".join(parts), pictures


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, which are valid in the repository, to links of the site."""
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]  # the tabs above are all of it
    source = ROOT / SOURCES.get(uri, f"docs/{uri}")
    parts = FENCED.split(markdown)
    parts[::2] = [NESTED.sub("    ", LINK.sub(lambda match: link(match, source, uri), part)) for part in parts[::2]]
    return "".join(parts).replace("<!-- report -->", REPORT)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Load KaTeX on the pages with equations, and keep intervals in tables on one line."""
    html = INTERVAL.sub(r"\1,&nbsp;\2", html)
    site = relpath("site", dirname(page.file.dest_uri) or ".")
    return html + MATH.format(site=site) if 'class="arithmatex"' in html else html


def link(match: re.Match[str], source: Path, uri: str) -> str:
    """Return a repository link as a site link, or as a plain name if the file is not part of the site.

    A link to a missing file is returned unchanged, so that MkDocs warns about it.
    """
    path = (source.parent / match["path"]).resolve()
    if not path.exists() or not path.is_relative_to(ROOT):
        return match[0]
    name = path.relative_to(ROOT).as_posix()
    script = name.replace(".ipynb", ".py")  # the page of a notebook is generated from its script
    if path.is_relative_to(ROOT / "docs"):
        found = path.relative_to(ROOT / "docs").as_posix()
    elif script in PAGES:
        found = PAGES[script]
    else:
        return f"`{name}`" if match["text"] == name else f"{match['text']} (`{name}`)"
    start, end = (place - match.start() for place in match.span("path"))
    return match[0][:start] + relpath(found, dirname(uri) or ".") + match[0][end:]
