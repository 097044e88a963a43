"""The documentation as data: its blocks of code and commands, the names it mentions, and the flags that exist."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.processes import ROOT
from uiat import recipes
from uiat.cli.bench import Bench
from uiat.cli.compare import Compare
from uiat.cli.curves import Curves
from uiat.cli.data import Fetch, Info, Pack
from uiat.cli.evaluate import Evaluate
from uiat.cli.export import Export, Push
from uiat.cli.flags import ALL, HELP
from uiat.cli.inverse import InverseOptions
from uiat.cli.listing import NAMES_FLAG
from uiat.cli.predict import Predict
from uiat.cli.report import Report
from uiat.cli.reproduce_job import Reproduce
from uiat.cli.train_options import NewRun, Resume
from uiat.cli.watch import WatchOptions
from uiat.evaluation.subject import Subject
from uiat.models import MODELS
from uiat.plugins import FLAG
from uiat.report.page.network_summary import SummaryOptions

README = ROOT / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str

    def commands(self) -> list[list[str]]:
        """Return the arguments of each line of a shell block, without comments and variables set in front."""
        lines = [shlex.split(line, comments=True) for line in self.text.splitlines()]
        return [args[sum("=" in word for word in args[:1]) :] for args in lines if args]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(language, text) for language, text in found]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def quoted(page: Path) -> list[str]:
    """Return the text in single backticks, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def known_flags() -> set[str]:
    """Return the flags of `uiat train`, for every recipe and model, and of the commands that examine a network."""
    configs = [recipes.get_recipe(name) for name in recipes.RECIPES]
    configs += [replace(configs[0], model=model) for model in MODELS.values()]
    flags = {flag for config in configs for flag in _flags(config, "--")}
    commands: tuple[Any, ...] = (
        NewRun,
        Resume,
        Subject,
        Evaluate,
        Curves,
        InverseOptions,
        Predict,
        Export,
        Push,
        Info,
        Pack,
        Fetch,
        Reproduce,
        Bench,
        Compare,
        Report,
        SummaryOptions,
        WatchOptions,
    )
    return (
        flags
        | {FLAG, ALL, NAMES_FLAG, HELP[1]}
        | {f"--{field.name.replace('_', '-')}" for part in commands for field in fields(part)}
    )


def _flags(value: Any, prefix: str) -> Iterator[str]:
    for field in fields(value):
        name, part = prefix + field.name.replace("_", "-"), getattr(value, field.name)
        yield name
        if isinstance(part, bool):
            yield f"{prefix}no-{field.name.replace('_', '-')}"
        if is_dataclass(part):
            yield from _flags(part, f"{name}.")
