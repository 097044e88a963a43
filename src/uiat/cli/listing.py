"""`uiat list`: methods, models, data sets and attacks, a line each; recipes as a table of data and networks."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from uiat import attacks, data, methods, models, recipes
from uiat.errors import unknown
from uiat.evaluation import suite
from uiat.progress import print_result

TABLE_WIDTH = 100
"""Maximum width of the table of recipes, in columns."""
NAMES_FLAG = "--names"
LIST_USAGE = """usage: uiat list [{kinds}]… [--names]

List what is available, a line each, and recipes as a table; with --names only the names, one per
line."""
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
    """Return the description of a registered object: its own, else its class's first line, else the class's name."""
    kind = type(part)
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
    """Yield the table of recipes: the methods of each data set with each network, then the settings."""
    by_place: dict[tuple[str, str], list[str]] = {}
    for name in recipes.RECIPES:
        place, method = split_name(name)
        if method:
            by_place.setdefault(place, []).append(method)
    usual = {place: tuple(m for m in has if m in methods.METHODS) for place, has in by_place.items()}
    more = {place: tuple(m for m in has if m not in methods.METHODS) for place, has in by_place.items()}
    marks = {(): "·"} | {
        names: chr(ord("a") + k) for k, names in enumerate(dict.fromkeys(filter(None, usual.values())))
    }
    pluses = {(): ""} | {names: "+" * (k + 1) for k, names in enumerate(dict.fromkeys(filter(None, more.values())))}
    networks = list(dict.fromkeys(network for _, network in by_place))
    yield f"named DATA-NETWORK-METHOD, such as {recipes.DEFAULT_RECIPE} (the default); letters stand for methods"
    yield ""
    yield _row("", networks, networks)
    for images in dict.fromkeys(images for images, _ in by_place):
        places = [(images, network) for network in networks]
        yield _row(images, [f"{marks[usual.get(p, ())]} {pluses[more.get(p, ())]}" for p in places], networks)
    yield ""
    for names, mark in (*marks.items(), *pluses.items()):
        if names:
            yield from _wrap(", ".join(names), f"{mark:<3}", "   ")
    known = {name for group in recipes.RECIPE_GROUPS.values() for name in group}
    others = {name: recipe for name, recipe in recipes.RECIPES.items() if name not in known}
    for title, group in {**recipes.RECIPE_GROUPS, "others": others}.items():
        if group:
            yield ""
            yield title
            yield from _settings(group)


def split_name(name: str) -> tuple[tuple[str, str], str]:
    """Return ((data, network), method) of a recipe's name; empty strings where the name has another form."""
    for network in sorted(models.MODELS, key=len, reverse=True):
        images, separator, method = name.partition(f"-{network}-")
        if separator:
            return (images, network), method
    return ("", ""), ""


def _row(title: str, cells: list[str], networks: list[str]) -> str:
    widths = [len(network) + 3 for network in networks]
    return f"{title:<15}" + "".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))


def _settings(names: Iterable[str]) -> Iterator[str]:
    """Yield lines for each setting: the data and networks that have it, then its description."""
    places: dict[str, list[str]] = {}
    for name in names:
        (images, network), method = split_name(name)
        whole = f"{images}-{network}-…" if method in methods.METHODS else name
        places.setdefault(recipes.describe_recipe(name), []).append(whole)
    for line, recipe_names in places.items():
        yield from _wrap(", ".join(dict.fromkeys(recipe_names)), "  ", "  ")
        yield from _wrap(line, "    ", "    ")


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, TABLE_WIDTH - 2, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
