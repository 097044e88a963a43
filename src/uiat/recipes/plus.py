"""Boosters that combine with every method, and `uiat-plus`: one-off UIAT with some of them (docs/results.md)."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from uiat.config import AWP, AnyConfig, Averaging
from uiat.recipes import paper, small

SMOOTHING = 0.2


def averaged(config: AnyConfig) -> AnyConfig:
    """Return the run with a moving average of its weights, which is evaluated instead of them."""
    return replace(config, train=replace(config.train, averaging=Averaging(enabled=True)))


def smoothed(config: AnyConfig) -> AnyConfig:
    """Return the run with smoothed labels in its cross-entropy."""
    return replace(config, method=replace(config.method, label_smoothing=SMOOTHING))  # type: ignore[type-var]


def weight_perturbed(config: AnyConfig) -> AnyConfig:
    """Return the run with adversarial weight perturbation."""
    return replace(config, train=replace(config.train, awp=AWP(enabled=True)))


BOOSTERS: dict[str, Callable[[AnyConfig], AnyConfig]] = {
    "averaging": averaged,
    "smoothing": smoothed,
    "AWP": weight_perturbed,
}
PLUS_BOOSTERS = ("averaging", "smoothing")
"""The boosters of `uiat-plus` at small scale: AWP costs natural accuracy there (docs/log.md)."""
LAM = 1.0
"""λ of `uiat-plus`: the paper's 3.5 costs natural accuracy at small scale (docs/log.md)."""


def boosted(config: AnyConfig, names: Iterable[str] = PLUS_BOOSTERS) -> AnyConfig:
    """Return the run with these boosters."""
    for name in names:
        config = BOOSTERS[name](config)
    return config


def uiat_plus(config: AnyConfig, names: Iterable[str] = PLUS_BOOSTERS, lam: float = LAM) -> AnyConfig:
    """Return a run of UIAT, one-off or not, with another λ and boosters."""
    return boosted(replace(config, method=replace(config.method, lam=lam)), names)  # type: ignore[type-var]


def plus_at_small_size() -> AnyConfig:
    """CIFAR-10 at 16×16: one-off UIAT with weight averaging, smoothed labels and λ = 1."""
    return uiat_plus(small.cifar10_small("uiat-oneoff"))


def plus_at_paper_size() -> AnyConfig:
    """CIFAR-10 as in A.2: one-off UIAT with weight averaging, smoothed labels and AWP; not measured at this size."""
    return boosted(paper.cifar10("resnet18", "uiat-oneoff"), BOOSTERS)
