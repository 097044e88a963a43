"""Inverse and universal inverse examples of a network, and the share of images whose loss each lowers (Eq. 5).

The feature-level term of Eq. 4 is least at x itself (the triangle inequality: L1(F(x̌), F(x)) − L1(F(x̌), F(x̂)) is at
least −L1(F(x), F(x̂))). So L_Inv falls only where cross-entropy falls by more than that term rises: seldom for images
that are already classified with near certainty.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.attacks import PGD
from uiat.crafting import crafting
from uiat.data.images import Images, stratified
from uiat.data.loader import Loader, plain
from uiat.errors import UserError
from uiat.evaluation.cascade import is_correct
from uiat.evaluation.intervals import wilson
from uiat.evaluation.subject import LoadedSubject
from uiat.fields import check_radius
from uiat.methods import Method, MethodConfig
from uiat.objectives.inverse_loss import inverse_loss
from uiat.progress import Ticker
from uiat.rng import SampleDraws
from uiat.runs.checkpoint import Checkpointer
from uiat.runs.run_folder import RunFolder
from uiat.targets import InstanceInverse, UniversalInverse, UniversalInverseTarget
from uiat.targets.universal import add_clipped
from uiat.types import Batch, Clock

INSTANCE_STEPS = 5
"""Steps of ε'/2 of an instance-wise inverse (A.2), if the run does not define them."""
ATTACK_STEPS = 10


@dataclass(frozen=True)
class InverseSettings:
    """How x̂, the instance-wise x̌ and the universal z are computed; both inverses descend the same L_Inv."""

    attack: PGD
    instance: InstanceInverse
    universal: UniversalInverse

    @property
    def beta(self) -> float:
        """β of Eq. 4, for both."""
        return self.instance.beta


def inverse_settings(
    method: MethodConfig | None, base: PGD, *, eps: float | None = None, beta: float | None = None
) -> InverseSettings:
    """Return ε', the steps and β: the given ones, else those of the run's method, else those of the paper.

    The attack is that of the threat model `base`.
    """
    trained = method.inverse if method is not None else None
    radius = eps if eps is not None else trained.eps if trained is not None else base.eps / 2
    if not 0 < radius < inf:
        raise UserError(f"the inverse radius ε' is {radius}: give one above 0 with --inverse-eps.")
    weight = beta if beta is not None else trained.beta if trained is not None else 1.0
    if not 0 <= weight < inf:
        raise UserError(f"--beta is {weight}: give at least 0.")
    shared: dict[str, Any] = {"eps": radius, "beta": weight, "norm": base.norm if trained is None else trained.norm}
    check_radius("the inverse radius ε'", radius, shared["norm"])
    if trained is not None:
        shared["reduction"] = trained.reduction
    instance = InstanceInverse(step=radius / 2, steps=INSTANCE_STEPS, **shared)
    universal = UniversalInverse(step=radius, **shared)
    if trained is not None and trained.eps:
        step = trained.step * (radius / trained.eps)
        if isinstance(trained, InstanceInverse):
            instance = replace(trained, step=step, **shared)
        else:
            universal = replace(trained, step=step, **shared)
    return InverseSettings(replace(base, steps=ATTACK_STEPS), instance, universal)


BATCH = 128
"""m of the paper: number of images in a step of z."""


@dataclass(frozen=True)
class Universal:
    """z of each class, and its source."""

    z: Tensor
    source: str


def read_z(run: RunFolder) -> Universal | None:
    """Return z from a run's checkpoint; `None` where there is no checkpoint, or its method has no z."""
    try:
        saved = Checkpointer(run).read()
    except UserError:
        raise UserError(f"the checkpoint of {run.path} is damaged or of another version: use --weights best.") from None
    if saved is None:
        return None
    perturbations = [value for name, value in saved["method"].items() if name.split(".")[-1] == "z"]
    epoch, step = saved["epoch"], saved["step"]
    when = f"step {step} of epoch {epoch}" if step else f"epoch {epoch - 1}"
    return Universal(perturbations[0], f"read from the checkpoint of the run, after {when}") if perturbations else None


def make_z(
    model: nn.Module,
    images: Images,
    settings: InverseSettings,
    *,
    passes: int,
    count: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Universal:
    """Compute z for fixed weights: the steps of Alg. 1 on z, in `passes` passes over `count` images."""
    for name, value in (("--passes", passes), ("--z-images", count)):
        if value < 1:
            raise UserError(f"{name} is {value}: give at least 1.")
    chosen = images.take(stratified(images.y, min(count, len(images)), seed)[0])
    target = UniversalInverseTarget(settings.universal, chosen.spec, seed=seed).to(device)
    attack = settings.attack if settings.beta else None  # only the feature-level term needs x̂
    method = Method(chosen.spec, attack=attack, target=target, terms=(), seed=seed)
    loader = Loader(chosen, BATCH, seed, device=device)
    with torch.no_grad(), Ticker(passes * loader.steps_per_epoch, "computing z") as ticker:
        for epoch in range(1, passes + 1):
            for step, batch in loader.epoch(epoch):
                clock = Clock(epoch, step, passes)
                method.prepare(model, [method.craft(model, batch, clock)], clock)
                ticker.advance(1)
    times = "1 pass" if passes == 1 else f"{passes} passes"
    return Universal(target.z.cpu(), f"computed for these weights, in {times} over {len(chosen)} training images")


IMAGE_KINDS = ("natural", "inverse", "universal")
LOSSES = ("cross_entropy", "l_inv")


def find_z(subject: LoadedSubject, settings: InverseSettings, *, passes: int, count: int) -> Universal:
    """Return z for the weights, settings and images of a subject: that of the run if it applies, else a new one."""
    spec, run = subject.images.spec, subject.run
    if run is not None and subject.weights_file == run.last:
        config = run.read_config()
        universal = read_z(run) if settings.universal == config.method.inverse else None
        same = config.data.name == subject.options.data.name
        if universal is not None and same and universal.z.shape == (spec.num_classes, *spec.shape):
            return universal
    seed = subject.options.seed
    return make_z(subject.model, subject.train, settings, passes=passes, count=count, seed=seed, device=subject.device)


@dataclass(frozen=True)
class Inverses:
    """Predictions and losses by kind (natural, inverse, universal), on the CPU."""

    y: Tensor
    correct: dict[str, Tensor]
    losses: dict[str, dict[str, Tensor]]
    """Each image's cross-entropy and L_Inv, by kind."""
    kept: Tensor
    """Positions of the images that were kept, ascending."""
    x: dict[str, Tensor]
    """The kept images themselves, by kind."""

    def shares(self, members: Tensor) -> dict[str, Any]:
        """Return the accuracies of some images, and the shares whose losses the inverse examples lower."""
        n = int(members.sum())
        lowered = {loss: {k: v[k] < v["natural"] for k in IMAGE_KINDS[1:]} for loss, v in self.losses.items()}
        return {
            "n": n,
            "accuracy": {kind: _share(self.correct[kind], members) for kind in IMAGE_KINDS},
            "lowered": {loss: {k: _share(v, members) for k, v in by.items()} for loss, by in lowered.items()},
            "lowered_interval95": {
                loss: {k: list(wilson(int(v[members].sum()), n)) for k, v in by.items()} for loss, by in lowered.items()
            },
        }

    def table(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """Return the shares overall, and for each class that has an image."""
        present = [(c, name) for c, name in enumerate(classes) if bool((self.y == c).any())]
        everyone = torch.ones_like(self.y, dtype=torch.bool)
        return {"overall": self.shares(everyone), "classes": {name: self.shares(self.y == c) for c, name in present}}


def make_inverses(
    model: nn.Module,
    fast: nn.Module,
    images: Images,
    settings: InverseSettings,
    z: Tensor,
    keep: Tensor,
    *,
    batch_size: int = 256,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Inverses:
    """Generate both kinds of inverse examples for every image; those at the positions `keep` are kept.

    The features of Eq. 4 are those of `model`; `fast`, an accelerated copy without features, crafts x̂. The random
    numbers of an image depend on the seed and on its position alone.
    """
    parts: list[dict[str, Tensor]] = []
    x: dict[str, list[Tensor]] = {kind: [] for kind in IMAGE_KINDS}
    z = z.to(device)
    ticker = Ticker(len(images), "generating inverse examples")
    with crafting(model, "eval"), crafting(fast, "eval"), torch.no_grad(), ticker:
        for batch in plain(images, batch_size, device):
            made, verdicts = _make(model, fast, batch, settings, z, seed)
            parts.append(verdicts)
            assert batch.index is not None
            wanted = torch.isin(batch.index.cpu(), keep)
            for kind, at in made.items():
                x[kind].append(at.cpu()[wanted])
            ticker.advance(len(batch))
    joined = {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}
    return Inverses(
        images.y.cpu(),
        {kind: joined[f"{kind}/correct"] for kind in IMAGE_KINDS},
        {loss: {kind: joined[f"{kind}/{loss}"] for kind in IMAGE_KINDS} for loss in LOSSES},
        keep.unique(),
        {kind: torch.cat(batches) for kind, batches in x.items()},
    )


def _make(
    model: nn.Module, fast: nn.Module, batch: Batch, settings: InverseSettings, z: Tensor, seed: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the images of a batch by kind, and the predictions and losses of each."""
    x, y, inverse = batch.x, batch.y, settings.instance
    assert batch.index is not None
    draws = SampleDraws(seed, index=tuple(batch.index.tolist()))
    x_adv = settings.attack(fast, x, y, draws) if settings.beta else x
    images = {"natural": x, "inverse": inverse(model, x, y, x_adv, draws), "universal": add_clipped(x, z, y)}
    loss = inverse_loss(model, x, y, x_adv, beta=inverse.beta, reduction=inverse.reduction)
    verdicts: dict[str, Tensor] = {}
    for kind, at in images.items():
        logits = model(at)
        verdicts[f"{kind}/correct"] = is_correct(logits, y)
        verdicts[f"{kind}/cross_entropy"] = F.cross_entropy(logits, y, reduction="none")
        verdicts[f"{kind}/l_inv"] = loss(at)
    return images, verdicts


def _share(verdicts: Tensor, members: Tensor) -> float:
    return float(verdicts[members].double().mean())


def shown_places(y: Tensor, rows: int, per_class: int) -> Tensor:
    """Return the positions of the first images of the first classes, class by class."""
    places = [(y == label).nonzero().flatten()[:per_class] for label in y.unique()[:rows]]
    return torch.cat(places)
