"""The documentation as data: its blocks of code, its commands, the names it mentions."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str

    def commands(self) -> list[list[str]]:
        """Return the words of each line of a shell block, without comments and variables set in front."""
        lines = [shlex.split(line, comments=True) for line in self.text.splitlines()]
        return [words[sum("=" in word for word in words[:1]) :] for words in lines if words]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(language, text) for language, text in found]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def quoted(page: Path) -> list[str]:
    """Return what stands in single backticks, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", prose(page))
