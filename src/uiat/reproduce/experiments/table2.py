"""Table 2: time of a training epoch, and the passes that it is made of, for three networks."""

from uiat.reproduce.paper import paper_figure
from uiat.reproduce.readings import EpochPasses, EpochTime
from uiat.reproduce.scales import Scale
from uiat.reproduce.table import Table, make_entry
from uiat.reproduce.timing import Timing

ROWS = {
    "Natural Training": "natural",
    "TRADES": "trades",
    "HAT": "hat",
    "IAT": "iat",
    "UIAT": "uiat",
    "UIAT (One-off)": "uiat-oneoff",
}


def timings(scale: Scale) -> dict[str, Timing]:
    """Return the race on each of the paper's networks."""
    return {network: scale.timing(network, tuple(ROWS.values())) for network in scale.networks}


def build(scale: Scale) -> Table:
    """Return the table at a scale."""
    races, entries, digits = timings(scale), [], 4 if scale.name == "smoke" else 2
    for row, method in ROWS.items():
        for network, ours in scale.networks.items():
            reading, figure = EpochTime(races[network], method, 60.0, digits), paper_figure("table2", row, network)
            entries.append(make_entry(row, "minutes an epoch", ours, None, reading, figure, best="least"))
        passes = EpochPasses(scale.config(method))
        entries.append(make_entry(row, "passes an image", "all networks", None, passes, best="least"))
    notes = (
        f"Times: steps of all methods, interleaved in one process, {scale.rounds} rounds (± is over these), times the "
        "steps of an epoch. Passes: forwards, backwards to the input and backwards to the weights, each 1, of the "
        "network that is trained; HAT's helper is in its time alone.",
    )
    return Table("table2", "Time of a training epoch", scale, tuple(entries), notes, timings=tuple(races.values()))
