"""`uiat list`: what there is, a line each; recipes as a table of data and networks."""

import textwrap
from collections.abc import Iterable, Iterator

from uiat import attacks, data, methods, models, recipes
from uiat.errors import unknown
from uiat.evaluation import suite
from uiat.progress import PipeSafeConsole

WIDTH = 100
"""Columns that the table of recipes takes at most."""
NAMES = "--names"
USAGE = """usage: uiat list [{kinds}]… [--names]

Print what there is, a line each, and recipes as a table; with --names the names alone, one a line."""


def groups() -> dict[str, dict[str, str]]:
    """Return every name that a command takes, by kind, with its line."""
    return {
        "methods": methods.DESCRIPTIONS,
        "models": models.DESCRIPTIONS,
        "data": {name: source.description for name, source in data.SOURCES.items()},
        "attacks": {
            **attacks.DESCRIPTIONS,
            **{f"{k} (evaluation)": v for k, v in suite.DESCRIPTIONS.items()},
        },
        "recipes": {name: recipes.describe_recipe(name) for name in recipes.RECIPES},
    }


def main(args: list[str]) -> int:
    """Print all groups, or the ones named."""
    known = groups()
    if any(word in ("-h", "--help") for word in args):
        print(USAGE.format(kinds="|".join(known)))
        return 0
    kinds = [word for word in args if word != NAMES]
    for kind in kinds:
        if kind not in known:
            raise unknown("group", kind, known)
    for kind in kinds or known:
        if NAMES in args:
            lines = list(known[kind])
        elif kind == "recipes":
            lines = [kind, *(f"  {line}".rstrip() for line in recipe_lines())]
        else:
            width = max(map(len, known[kind]))
            lines = [kind, *(f"  {name:<{width}}  {line}" for name, line in known[kind].items())]
        PipeSafeConsole().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    return 0


def recipe_lines() -> Iterator[str]:
    """Yield the table of recipes: which methods each data set has with each network, then what the settings are."""
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
    yield f"named DATA-NETWORK-METHOD, such as {recipes.DEFAULT_RECIPE} (the default); letters: which methods"
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
    """Return ((data, network), method) of a recipe's name; no method where the name is of another form."""
    for network in sorted(models.MODELS, key=len, reverse=True):
        images, separator, method = name.partition(f"-{network}-")
        if separator:
            return (images, network), method
    return ("", ""), ""


def _row(title: str, cells: list[str], networks: list[str]) -> str:
    widths = [len(network) + 3 for network in networks]
    return f"{title:<15}" + "".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))


def _settings(names: Iterable[str]) -> Iterator[str]:
    """Yield lines for each setting: the data and networks that have it, then what it is."""
    places: dict[str, list[str]] = {}
    for name in names:
        (images, network), method = split_name(name)
        whole = f"{images}-{network}-…" if method in methods.METHODS else name
        places.setdefault(recipes.describe_recipe(name), []).append(whole)
    for line, recipe_names in places.items():
        yield from _wrap(", ".join(dict.fromkeys(recipe_names)), "  ", "  ")
        yield from _wrap(line, "    ", "    ")


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, WIDTH - 2, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
