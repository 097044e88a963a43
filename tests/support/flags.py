"""Every flag that a command line has, taken from the objects it follows."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from uiat import recipes
from uiat.cli.bench import Bench
from uiat.cli.compare import Compare
from uiat.cli.curves import Curves
from uiat.cli.data import Fetch, Info, Pack
from uiat.cli.evaluate import Evaluate
from uiat.cli.export import Export
from uiat.cli.flags import ALL, HELP
from uiat.cli.inverse import InverseOptions
from uiat.cli.listing import NAMES_FLAG
from uiat.cli.push import Push
from uiat.cli.report import Report
from uiat.cli.reproduce_job import Reproduce
from uiat.cli.train import NewRun, Resume
from uiat.cli.watch import WatchOptions
from uiat.evaluation.subject import Subject
from uiat.models import MODELS
from uiat.plugins import FLAG
from uiat.report.page.network_summary import SummaryOptions


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
