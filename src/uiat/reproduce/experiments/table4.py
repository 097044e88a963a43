"""Table 4: training with generated data."""

from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Entry, Table


def table4_cells(scale: Scale) -> list[Entry]:
    """Return the places of the table."""
    return []


def build(scale: Scale) -> Table:
    """Return the table at a scale."""
    return Table("table4", "Training with generated data: accuracy (%)", scale, tuple(table4_cells(scale)))
