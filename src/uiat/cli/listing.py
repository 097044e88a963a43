"""`uiat list`: methods, models, data sets and attacks, a line each; recipes by their settings."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from uiat import attacks, data, methods, models, recipes
from uiat.errors import unknown
from uiat.evaluation import suite
from uiat.progress import print_result

TEXT_WIDTH = 100
"""Maximum width of the lines about recipes, in columns."""
NAMES_FLAG = "--names"
LIST_USAGE = """usage: uiat list [{kinds}]… [--names]

List what is available, a line each, and recipes by their settings; with --names only the names, one
per line."""
ATTACK_EXAMPLES = {
    "pgd-K": "pgd-20",
    "pgd-K-R": "pgd-50-10",
    "pgd-margin-K": "pgd-margin-20",
    "A+B+…": "apgd-ce+square",
}
"""A name that `--attacks` accepts, for each form of names."""


def groups() -> dict[str, dict[str, str]]:
    """Return every registered name by kind, with its description."""
    return {
        "methods": {name: describe_part(name, part, methods.DESCRIPTIONS) for name, part in methods.METHODS.items()},
        "models": {name: describe_part(name, part, models.DESCRIPTIONS) for name, part in models.MODELS.items()},
        "data": {name: source.description for name, source in data.SOURCES.items()},
        "attacks": {
            **suite.DESCRIPTIONS,
            **{name: describe_part(name, part, attacks.DESCRIPTIONS) for name, part in suite.custom_attacks().items()},
        },
        "training-attacks": {
            name: describe_part(name, part, attacks.DESCRIPTIONS) for name, part in attacks.ATTACKS.items()
        },
        "recipes": {name: recipes.describe_recipe(name) for name in recipes.RECIPES},
    }


def describe_part(name: str, part: object, descriptions: Mapping[str, str]) -> str:
    """Return the description of a registered object: its own, else the first line of its class, else the class's name.

    A function describes itself.
    """
    kind: Any = part if hasattr(part, "__qualname__") else type(part)
    text = (kind.__doc__ or "").strip()
    generated = text.startswith(f"{kind.__name__}(")  # by `dataclass`, where there is no docstring
    return descriptions.get(name) or (text.splitlines()[0] if text and not generated else kind.__qualname__)


def accepted_names() -> dict[str, list[str]]:
    """Return the names of each kind that commands accept; an example for each form of attack names."""
    return {kind: [ATTACK_EXAMPLES.get(name, name) for name in group] for kind, group in groups().items()}


def main(args: list[str]) -> int:
    """Run the command: print all groups, or those that are named."""
    known = groups()
    if any(word in ("-h", "--help") for word in args):
        print(LIST_USAGE.format(kinds="|".join(known)))
        return 0
    kinds = [word for word in args if word != NAMES_FLAG]
    for kind in kinds:
        if kind not in known:
            raise unknown("group", kind, known)
    for kind in kinds or known:
        if NAMES_FLAG in args:
            lines = accepted_names()[kind]
        elif kind == "recipes":
            lines = [kind, *(f"  {line}".rstrip() for line in recipe_lines())]
        else:
            width = max(map(len, known[kind]))
            lines = [kind, *(f"  {name:<{width}}  {line}" for name, line in known[kind].items())]
        print_result("\n".join(lines))
    return 0


def recipe_lines() -> Iterator[str]:
    """Yield the recipes by purpose: for each setting the data and networks that have it, its description, methods."""
    yield f"named DATA-NETWORK-METHOD, such as {recipes.DEFAULT_RECIPE} (the default)"
    known = {name for group in recipes.RECIPE_GROUPS.values() for name in group}
    others = [name for name in recipes.RECIPES if name not in known]
    by_purpose: dict[str, Iterable[str]] = {**recipes.RECIPE_GROUPS, "others": others}
    for title, names in by_purpose.items():
        settings: dict[str, dict[str, list[str]]] = {}
        for name in names:
            place, method = split_name(name)
            whole, offered = (f"{place}-METHOD", [method]) if method in methods.METHODS else (name, [])
            settings.setdefault(recipes.describe_recipe(name), {}).setdefault(whole, []).extend(offered)
        yield from ("", title) if settings else ()
        for text, by_place in settings.items():
            yield from _wrap(", ".join(by_place), "  ")
            yield from _wrap(text, "    ")
            if every := ", ".join(dict.fromkeys(chain(*by_place.values()))):
                yield from _wrap(f"METHOD: {every}", "    ")


def split_name(name: str) -> tuple[str, str]:
    """Return (data-network, method) of a recipe's name; empty strings where the name has another form."""
    for network in sorted(models.MODELS, key=len, reverse=True):
        images, separator, method = name.partition(f"-{network}-")
        if separator:
            return f"{images}-{network}", method
    return "", ""


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, TEXT_WIDTH - 2, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
