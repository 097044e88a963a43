"""Table 6: what universal generation (UAG), the feature-level term (FR) and momentum (IAM) contribute."""

from uiat.config import AnyConfig
from uiat.reproduce.cell import Cell
from uiat.reproduce.configs import change_method
from uiat.reproduce.paper import paper_figure
from uiat.reproduce.readings import Percent
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Table, make_entry

COMPONENTS = ("UAG", "FR", "IAM")


def components(row: str) -> tuple[bool, bool, bool]:
    """Return which components a row of the paper's table has."""
    uag, fr, iam = (paper_figure("table6", row, name) == "1" for name in COMPONENTS)
    return uag, fr, iam


def ablated(scale: Scale, row: str) -> AnyConfig:
    """Return the run of a row; row 5 is UIAT as it is in every other table."""
    uag, fr, iam = components(row)
    config = scale.config("uiat" if uag else "iat")
    if not fr:
        config = change_method(config, "inverse", beta=0.0)
    return change_method(config, "momentum", enabled=iam)


def build(scale: Scale) -> Table:
    """Return the table at a scale."""
    entries = []
    for row in "12345":
        present = [name for name, there in zip(COMPONENTS, components(row), strict=True) if there]
        label = f"{row}: {' + '.join(present) or 'none (instance-wise)'}"
        for column, theirs in {"Natural": "Natural", "PGD-20": "PGD-20", "Robust": "AA"}.items():
            reading, figure = Percent(scale.attacked(column)), paper_figure("table6", row, theirs)
            entries.append(
                make_entry(label, scale.data["CIFAR-10"], column, Cell(ablated(scale, row)), reading, figure)
            )
    return Table("table6", "Ablation of UIAT's components: accuracy (%)", scale, tuple(entries), label="components")
