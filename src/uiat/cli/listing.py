"""`uiat list`: what there is, a line each."""

from rich.console import Console
from rich.table import Table

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
        table = Table(title=kind, title_justify="left", box=None, show_header=False, padding=(0, 2, 0, 2))
        table.add_column(no_wrap=True)
        for name, line in known[kind].items():
            table.add_row(name, line)
        Console().print(table)
    return 0
