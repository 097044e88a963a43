"""Interleaved timing: in every round everybody takes a turn, with the bare passes in between."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from uiat.bench.bare import Bare, Pass
from uiat.bench.entrants import Entrant
from uiat.bench.need import Need
from uiat.progress import Ticker


@dataclass
class Times:
    """Seconds, a value a round."""

    steps: dict[str, list[float]] = field(default_factory=dict)
    """Of a step of each entrant, averaged over the phases of its run."""
    phases: dict[str, list[list[float]]] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    """Of each entrant's first steps, one a phase, which compile what is to be compiled; not part of the rounds."""
    passes: dict[str, list[float]] = field(default_factory=dict)
    """Of each kind of bare pass: the median of the round."""

    def bare(self, need: Need) -> list[float]:
        """Return the seconds that the passes of a step need, in each round."""
        rounds = len(next(iter(self.passes.values())))
        kinds = [(kind, getattr(need, kind)) for kind in self.passes]
        return [sum(count * self.passes[kind][k] for kind, count in kinds) for k in range(rounds)]

    def ratio(self, name: str, to: Sequence[float]) -> float:
        """Return the median over rounds of one entrant's time against others."""
        return median(a / b for a, b in zip(self.steps[name], to, strict=True))


def race(
    entrants: Sequence[Entrant], passes: Mapping[str, Pass], rounds: int, device: torch.device, *, warm_up: int = 1
) -> Times:
    """Time every entrant `rounds` times, in an order that turns from round to round."""
    times = Times()
    turns = sum(len(entrant.phases) for entrant in entrants)
    with Ticker((rounds + warm_up) * turns, "measuring") as ticker:
        for number in range(-warm_up, rounds):
            found: dict[str, list[float]] = {}
            seen: dict[str, list[float]] = {kind: [] for kind in passes}
            start = number % len(entrants)
            for entrant in (*entrants[start:], *entrants[:start]):
                found[entrant.name] = []
                for phase in entrant.phases:
                    for kind, run in passes.items():
                        seen[kind].append(_pass_seconds(run, device))
                    found[entrant.name].append(_seconds(phase.step, device))
                    ticker.advance(1, f"{entrant.name}, round {max(0, number + 1)} of {rounds}")
            if number >= 0:
                _add(times, entrants, found, seen)
            elif number == -warm_up:
                times.first = {name: sum(seconds) for name, seconds in found.items()}
    return times


def _add(
    times: Times, entrants: Sequence[Entrant], found: dict[str, list[float]], seen: dict[str, list[float]]
) -> None:
    for entrant in entrants:
        seconds = found[entrant.name]
        shared = sum(phase.share * value for phase, value in zip(entrant.phases, seconds, strict=True))
        times.steps.setdefault(entrant.name, []).append(shared)
        times.phases.setdefault(entrant.name, []).append(seconds)
    for kind, values in seen.items():
        times.passes.setdefault(kind, []).append(median(values))


def _pass_seconds(run: Pass, device: torch.device) -> float:
    """Return the seconds of a pass; the network is brought into its state before the clock starts."""
    if not isinstance(run, Bare):
        return _seconds(run, device)
    with run.within() as network:
        return _seconds(lambda: run.repeat(network), device) / run.times


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    _settle(device)
    began = time.perf_counter()
    run()
    _settle(device)
    return time.perf_counter() - began


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
