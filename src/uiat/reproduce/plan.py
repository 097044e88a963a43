"""`--plan`: the runs, what each costs, and a command for each, so that any scheduler can share them."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from uiat.progress import clock_time
from uiat.reproduce.budget import seconds, training_passes
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.index import mixed
from uiat.reproduce.measures import measure_key
from uiat.reproduce.races import Race
from uiat.reproduce.workers import work_done


def print_plan(
    cells: Sequence[Cell], races: Sequence[Race], out: Path, device: torch.device, command: list[str]
) -> None:
    """Print the runs with their passes and times, the races, then the commands of runs that are not finished."""
    console = Console(highlight=False)

    def say(line: str = "") -> None:
        console.print(line, markup=False, soft_wrap=True)

    totals, left_over = [0, 0, 0], 0.0
    commands = []
    say(
        "run · what it is · state · millions of passes (forward, input-backward, weight-backward) · time left · "
        "measurements"
    )
    for cell in cells:
        store, cost, passes = Store(cell, out), seconds(cell, device), training_passes(cell.config)
        left = sum(cost) - work_done(store, cost)
        state = "finished" if store.finished else "begun" if store.run.config.exists() else "new"
        counts = " ".join(f"{count / 1e6:.2f}" for count in passes)
        measures = " ".join(measure_key(measure) for measure in cell.measures) or "none"
        say(f"{cell.name} · {_in_words(cell.labels)} · {state} · {counts} · {clock_time(left)} · {measures}")
        left_over += left
        if state != "finished":
            totals = [total + count for total, count in zip(totals, passes, strict=True)]
            commands.append(shlex.join([*command, "--cell", cell.key]))
    counts = " ".join(f"{count / 1e6:.2f}" for count in totals)
    say(f"{len(cells)} runs, {len(commands)} to make · {counts} · {clock_time(left_over)} for one process on {device}")
    say(
        "Passes are exact and of the training alone; times are estimated from a timing of each network on this machine,"
    )
    say("and count measurements as if no attack ever succeeded early.")
    if warning := mixed(cells, out):
        Console(stderr=True, highlight=False).print(warning, markup=False, soft_wrap=True)
    for race in races:
        duration = clock_time(race.seconds if race.is_left else 0.0)
        say(f"{race.what} · {race.state} · {duration} · {' '.join(race.timing.methods)}")
    for line in commands:
        say(line)


def _in_words(labels: Sequence[str]) -> str:
    """Write labels briefly, the name of each table or figure once: `table1: UIAT; figS2: β = 1, γ = 0.9`."""
    places: dict[str, list[str]] = {}
    for label in labels:
        place, _, words = label.partition(": ")
        places.setdefault(place, []).append(words)
    return "; ".join(f"{place}: {', '.join(words)}" if any(words) else place for place, words in places.items())
