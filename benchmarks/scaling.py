"""Cost of a UIAT step by the number of classes, the size of the data set, and the batch size.

    python benchmarks/scaling.py [--rounds 5] [--width 16] [--batch 32] [--threads 1] [--json FILE]

All variants of a row are interleaved in one process. For the number of classes, a step is divided by the bare passes of
its network, so that the larger head does not count; for the size of the data set, loading the batch is included.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from uiat.bench.bare_passes import bare_passes_of
from uiat.bench.interleaved_timing import Times, time_methods
from uiat.bench.setting import LR, BenchSetting
from uiat.bench.timed_method import Phase, TimedMethod, timed_method
from uiat.config import Training
from uiat.data.images import Images
from uiat.data.loader import Loader
from uiat.engine.state import State
from uiat.engine.step import train_step
from uiat.io import write_json
from uiat.methods import METHODS
from uiat.models import ResNet
from uiat.runs.result_card import environment
from uiat.types import Batch, Clock, DataSpec

CPU = torch.device("cpu")
EPOCHS = Training().epochs


@dataclass(frozen=True)
class Options:
    """What is timed, and how often."""

    rounds: int = 5
    width: int = 16
    batch: int = 32
    threads: int = 1
    json: Path | None = None


def setting(options: Options, classes: int = 10, samples: int = 50_000, batch: int = 0) -> BenchSetting:
    spec = DataSpec(classes, samples, (3, 32, 32))
    return BenchSetting(ResNet(width=options.width), spec, batch or options.batch, CPU, Training())


def timed(methods: list[TimedMethod], options: Options) -> Times:
    times = time_methods(methods, options.rounds, CPU)
    if warning := times.timing_warning():
        print(warning)
    return times


def classes(options: Options) -> dict[str, float]:
    """Return (step / bare passes) at each number of classes by that at 10."""
    values = (10, 100, 1000)
    settings = {str(v): setting(options, classes=v) for v in values}
    methods = [timed_method(name, c, METHODS["uiat"], bare_passes_of(c)) for name, c in settings.items()]
    times = timed(methods, options)
    return {name: times.over_bare(name) / times.over_bare("10") for name in settings}


def samples(options: Options) -> dict[str, float]:
    """Return batch + step at each size of the data set by that at 50,000."""
    block = torch.randint(0, 256, (10_000, 3, 32, 32), dtype=torch.uint8)
    methods = []
    for size in (50_000, 200_000, 1_000_000):
        x = block.repeat(size // len(block), 1, 1, 1)  # allocated memory, unlike zeros never read
        images = Images(x, torch.arange(size) % 10, tuple("0123456789"))
        batches = Loader(images, options.batch, 0, crop=4, flip=True).epoch(1)
        next(batches)  # the order of the epoch is drawn
        method = timed_method("uiat", setting(options, samples=size))
        assert method.state is not None
        phase = Phase(1.0, _both(batches, method.state))
        methods.append(TimedMethod(str(size), (phase,)))
    times = timed(methods, options)
    return {method.name: times.ratio(method.name, "50000") for method in methods}


def _both(batches: Iterator[tuple[int, Batch]], state: State) -> Callable[[], object]:
    """Make the next batch, and a step with it: other images and other rows of the table of p each time."""

    def both() -> None:
        number, batch = next(batches)
        assert train_step(state, batch, Clock(EPOCHS, number, EPOCHS), lr=LR) is None

    return both


def batches(options: Options) -> dict[str, float]:
    """Return the time of an image at each batch size by that at the largest."""
    sizes = (options.batch // 4, options.batch // 2, options.batch, 2 * options.batch)
    methods = [timed_method(str(size), setting(options, batch=size), METHODS["uiat"]) for size in sizes]
    times = timed(methods, options)
    return {str(size): times.ratio(str(size), str(sizes[-1])) * sizes[-1] / size for size in sizes}


def main(options: Options) -> None:
    torch.set_num_threads(options.threads)
    found: dict[str, dict[str, float]] = {}
    for name, measure in (("classes", classes), ("samples", samples), ("batch", batches)):
        found[name] = measure(options)
        print(name, {key: round(value, 3) for key, value in found[name].items()}, flush=True)
    if options.json is not None:
        write_json(options.json, {**found, "environment": environment("cpu")})


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
