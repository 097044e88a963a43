"""`uiat list`: what there is, a line each."""

from rich.console import Console

from uiat import attacks, data, methods, models, recipes
from uiat.errors import unknown
from uiat.evaluation import suite


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
        "recipes": {name: recipes.describe(name) for name in recipes.RECIPES},
    }


def main(args: list[str]) -> int:
    """Print all groups, or the ones named."""
    known = groups()
    if args and args[0] in ("-h", "--help"):
        Console().print(f"usage: uiat list [{'|'.join(known)}]…\n\nPrint what there is, a line each.", markup=False)
        return 0
    for kind in args:
        if kind not in known:
            raise unknown("group", kind, known)
    for kind in args or known:
        width = max(map(len, known[kind]))
        lines = [kind, *(f"  {name:<{width}}  {line}" for name, line in known[kind].items())]
        Console().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    return 0
