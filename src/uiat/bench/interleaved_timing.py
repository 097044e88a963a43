"""Interleaved timing: each round times every method once, right after the bare passes of its step.

Other load on the machine can only slow a step down, so the fastest round counts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from uiat.bench.bare_passes import BarePass
from uiat.bench.timed_method import TimedMethod
from uiat.engine.setup import cudnn_benchmark
from uiat.progress import Ticker

AGREEING = 3
"""Number of fastest rounds that have to agree: a single fast one may be an outlier."""
TOLERANCE = 0.05
"""Relative tolerance of their agreement."""


@dataclass
class Rounds:
    """Seconds of one method: a list for each round, with a value for each phase of a run."""

    shares: tuple[float, ...] = (1.0,)
    """Share of the run of each phase."""
    seconds: list[list[float]] = field(default_factory=list)

    @property
    def fastest(self) -> float:
        """The fastest step of each phase, averaged over the phases of a run."""
        return self._ranked(0)

    @property
    def spread(self) -> float | None:
        """Relative difference of the third fastest round; `None` for fewer than three rounds."""
        return self._ranked(AGREEING - 1) / self.fastest - 1 if len(self.seconds) >= AGREEING else None

    def turns(self, size: int) -> list[float]:
        """Return the fastest of every `size` consecutive rounds."""
        starts = range(0, len(self.seconds), size)
        return [Rounds(self.shares, self.seconds[start : start + size]).fastest for start in starts]

    def _ranked(self, place: int) -> float:
        phases: list[float] = [sorted(phase)[place] for phase in zip(*self.seconds, strict=True)]
        return sum(share * seconds for share, seconds in zip(self.shares, phases, strict=True))


def as_rounds(seconds: Sequence[float]) -> Rounds:
    """Return rounds of a single phase."""
    return Rounds(seconds=[[value] for value in seconds])


def timing_warning(by_name: Mapping[str, Rounds]) -> str:
    """Return why the fastest rounds are unreliable; empty if they agree."""
    spreads = {name: rounds.spread for name, rounds in by_name.items()}
    if None in spreads.values():
        return f"fewer than {AGREEING} rounds cannot show whether times agree: take more."
    apart = {name: spread for name, spread in spreads.items() if spread is not None and spread > TOLERANCE}
    if not apart:
        return ""
    most = max(apart, key=lambda name: apart[name])
    return (
        f"times are not to be trusted: the third fastest round took more than {TOLERANCE:.0%} longer than the fastest "
        f"for {len(apart)} of {len(spreads)} (most for {most}: {apart[most]:.0%}); "
        "other work disturbs this machine, wait for a quiet one or take more rounds."
    )


@dataclass
class Times:
    """Seconds of every method, round by round."""

    steps: dict[str, Rounds] = field(default_factory=dict)
    bare: dict[str, Rounds] = field(default_factory=dict)
    """Rounds of the bare passes of a step, for methods that have any."""
    first: dict[str, float] = field(default_factory=dict)
    """Seconds of each method's first steps, one for each phase, which include compiling; not part of the rounds."""

    def ratio(self, name: str, other: str) -> float:
        """Return the time of one method's fastest step, divided by that of another."""
        return self.steps[name].fastest / self.steps[other].fastest

    def over_bare(self, name: str) -> float:
        """Return the time of a method's fastest step, divided by that of its fastest bare passes."""
        return self.steps[name].fastest / self.bare[name].fastest

    def timing_warning(self) -> str:
        """Return why the times of steps and bare passes are unreliable; empty if their rounds agree."""
        return timing_warning({**self.steps, **{f"{name}'s bare passes": rounds for name, rounds in self.bare.items()}})


def time_methods(methods: Sequence[TimedMethod], rounds: int, device: torch.device, *, warm_up: int = 1) -> Times:
    """Time every method `rounds` times, in an order that rotates from round to round.

    The bare passes of a step are made right before it and take about as long, so that other load on the machine affects
    both in the same way.
    """
    times = Times()
    for method in methods:
        for rounds_of in (times.steps, times.bare) if method.bare else (times.steps,):
            rounds_of[method.name] = Rounds(tuple(phase.share for phase in method.phases))
    turns = sum(len(method.phases) for method in methods)
    with cudnn_benchmark(device), Ticker((rounds + warm_up) * turns, "measuring") as ticker:
        for number in range(-warm_up, rounds):
            start = number % len(methods)
            for method in (*methods[start:], *methods[:start]):
                bare, steps = [], []
                for phase in method.phases:
                    if method.bare:
                        bare.append(bare_seconds(method.bare, phase.kinds, device))
                    steps.append(_seconds(phase.step, device))
                    ticker.advance(1, f"{method.name}, round {max(0, number + 1)} of {rounds}")
                if number >= 0:
                    times.steps[method.name].seconds.append(steps)
                    if bare:
                        times.bare[method.name].seconds.append(bare)
                elif number == -warm_up:
                    times.first[method.name] = sum(steps)
    return times


def bare_seconds(passes: Mapping[str, BarePass], counts: Mapping[str, float], device: torch.device) -> float:
    """Return the seconds of so many passes of each kind; the clock runs only within their contexts."""
    total = 0.0
    for kind, run in passes.items():
        count = counts.get(kind, 0)
        times = max(1, round(count))
        if count:
            with run.context() as network:
                total += _seconds(lambda: run(network, times), device) * count / times  # noqa: B023
    return total


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    _synchronize(device)
    began = time.perf_counter()
    run()
    _synchronize(device)
    return time.perf_counter() - began


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
