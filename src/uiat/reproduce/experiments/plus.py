"""Beyond the paper: what weight averaging, smoothed labels and AWP add to UIAT, and to its rivals."""

from uiat.config import AnyConfig
from uiat.recipes.plus import BOOSTERS, PLUS, boosted
from uiat.reproduce.cell import Cell
from uiat.reproduce.readings import Percent
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Table, make_entry

COLUMNS = ("Natural", "PGD", "Robust")
METHODS = {"SAT": "sat", "TRADES": "trades", "UIAT": "uiat", "one-off UIAT": "uiat-oneoff"}
ABLATED = "one-off UIAT"


def variants(scale: Scale) -> dict[tuple[str, str], AnyConfig]:
    """Return the runs by section and row: plain methods, boosted ones, and each booster alone and left out."""
    plain = {name: scale.config(method) for name, method in METHODS.items()}
    found = {("as they are", name): config for name, config in plain.items()}
    found |= {("with all boosters", name): boosted(config) for name, config in plain.items()}
    for booster in BOOSTERS:
        rest = tuple(name for name in PLUS if name != booster)
        found[f"{ABLATED}, one booster", f"{booster} alone"] = boosted(plain[ABLATED], (booster,))
        found[f"{ABLATED}, two boosters", f"without {booster}"] = boosted(plain[ABLATED], rest)
    return dict(sorted(found.items(), key=lambda place: list(_SECTIONS).index(place[0][0])))


_SECTIONS = ("as they are", "with all boosters", f"{ABLATED}, one booster", f"{ABLATED}, two boosters")


def build(scale: Scale) -> Table:
    """Return the table at a scale."""
    entries = [
        make_entry(row, scale.data["CIFAR-10"], column, Cell(config), Percent(scale.attacked(column)), section=section)
        for (section, row), config in variants(scale).items()
        for column in COLUMNS
    ]
    notes = (f"Boosters: {', '.join(PLUS)}.",)
    return Table("plus", "Boosters: accuracy (%)", scale, tuple(entries), notes)
