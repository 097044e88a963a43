"""Interleaved timing: in every round everybody takes a turn, each after the bare passes that its step needs."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from uiat.bench.bare import Bare
from uiat.bench.entrants import TimedMethod
from uiat.bench.rounds import Rounds
from uiat.methods.passes import Need
from uiat.progress import Ticker


@dataclass
class Times:
    """Seconds of every entrant, round by round."""

    steps: dict[str, Rounds] = field(default_factory=dict)
    bare: dict[str, Rounds] = field(default_factory=dict)
    """Of the bare passes of a step; only of entrants that have some."""
    first: dict[str, float] = field(default_factory=dict)
    """Of each entrant's first steps, one a phase, which compile what is to be compiled; not part of the rounds."""

    def ratio(self, name: str, other: str) -> float:
        """Return the fastest step of one entrant by that of another."""
        return self.steps[name].fastest / self.steps[other].fastest

    def over_bare(self, name: str) -> float:
        """Return the fastest step of an entrant by the fastest of its bare passes."""
        return self.steps[name].fastest / self.bare[name].fastest


def race(entrants: Sequence[TimedMethod], rounds: int, device: torch.device, *, warm_up: int = 1) -> Times:
    """Time every entrant `rounds` times, in an order that turns from round to round.

    The bare passes of a step are as many as it needs, right before it: both take as long, so that work beside them
    disturbs both alike.
    """
    times = Times()
    for entrant in entrants:
        shares = tuple(phase.share for phase in entrant.phases)
        times.steps[entrant.name] = Rounds(shares)
        if entrant.passes:
            times.bare[entrant.name] = Rounds(shares)
    turns = sum(len(entrant.phases) for entrant in entrants)
    with Ticker((rounds + warm_up) * turns, "measuring") as ticker:
        for number in range(-warm_up, rounds):
            start = number % len(entrants)
            for entrant in (*entrants[start:], *entrants[:start]):
                bare, steps = [], []
                for phase in entrant.phases:
                    if entrant.passes:
                        bare.append(bare_seconds(entrant.passes, phase.need, device))
                    steps.append(_seconds(phase.step, device))
                    ticker.advance(1, f"{entrant.name}, round {max(0, number + 1)} of {rounds}")
                if number >= 0:
                    times.steps[entrant.name].seconds.append(steps)
                    if bare:
                        times.bare[entrant.name].seconds.append(bare)
                elif number == -warm_up:
                    times.first[entrant.name] = sum(steps)
    return times


def bare_seconds(passes: Mapping[str, Bare], need: Need, device: torch.device) -> float:
    """Return the seconds of the passes that a step needs; the network is in its state before the clock starts."""
    total = 0.0
    for kind, run in passes.items():
        count = getattr(need, kind)
        times = max(1, round(count))
        if count:
            with run.within() as network:
                total += _seconds(lambda: run.repeat(network, times), device) * count / times  # noqa: B023
    return total


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    _settle(device)
    began = time.perf_counter()
    run()
    _settle(device)
    return time.perf_counter() - began


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
