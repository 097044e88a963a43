"""One small setting for every method: a network with BatchNorm, three short epochs, and its twin beside it."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests import twins
from uiat.attacks import FGSM, NFGSM, PGD
from uiat.methods import METHODS, Method, MethodConfig
from uiat.models import ResNet
from uiat.rng import Draws
from uiat.types import Batch, Clock, DataSpec

DATA = DataSpec(num_classes=4, num_samples=14, shape=(1, 8, 8))
EPOCHS = 4
"""T = 3 and T' = 3 by their default fractions: before, at and after are all visited."""

TWIN_NAMES = {"uiat-oneoff": "uiat_one_off", "gradalign": "grad_align", "gradalign-uiat": "grad_align_uiat"}


def network(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A small network with BatchNorm whose running statistics are not the trivial ones."""
    torch.manual_seed(seed)
    model = ResNet(blocks=(1, 1), width=4).build(DATA).to(dtype)
    model.train()
    model(torch.rand(8, *DATA.shape, dtype=dtype))
    return model


def samples(dtype: torch.dtype = torch.float64, *, interior: bool = False) -> tuple[Tensor, Tensor]:
    """Images with many saturated pixels (where the clip matters) or with none, and labels of three of four classes."""
    g = torch.Generator().manual_seed(3)
    x = torch.rand(DATA.num_samples, *DATA.shape, generator=g, dtype=torch.float64)
    x = x * 0.6 + 0.2 if interior else (x * 1.6 - 0.3).clamp(0, 1)
    return x.to(dtype), torch.arange(DATA.num_samples) % 3


def steps(epochs: int = EPOCHS) -> Iterator[tuple[Clock, Tensor]]:
    """Three batches an epoch. Class 2 is absent from the second; sample 13 is met in the last epoch only, sample 12
    not in epoch 3, so that both are unseen when a target would remember them."""
    batches = [[0, 1, 2, 4, 5], [3, 6, 7, 9, 10], [8, 11, 12]]
    for epoch in range(1, epochs + 1):
        for step, members in enumerate(batches):
            kept = [i for i in members if not (i == 12 and epoch == 3)] + (
                [13] if epoch == epochs and step == 2 else []
            )
            yield Clock(epoch, step, epochs), torch.tensor(kept)


def build(config: MethodConfig, dtype: torch.dtype = torch.float64) -> Method:
    """The fast method, with a helper for HAT."""
    return config.build(DATA, seed=7, helper=network(5, dtype)).to(dtype)


def twin_settings(name: str, config: Any) -> dict[str, object]:
    """Translate a configuration into the twin's hyper-parameters."""
    hp: dict[str, object] = {}
    attack = getattr(config, "attack", None)
    if isinstance(attack, PGD):
        step = attack.eps / 4 if attack.step is None else attack.step
        hp |= {"eps": attack.eps, "step": step, "steps": attack.steps, "start": attack.start, "norm": attack.norm}
    elif attack is not None:
        hp |= {"eps": attack.eps, "alpha": attack.alpha} | (
            {"noise": attack.noise} if isinstance(attack, NFGSM) else {}
        )
    if config.attack is not None:
        hp["crafting"] = config.crafting
    with_inverse = config.uiat if getattr(config, "uiat", None) is not None and config.uiat.enabled else config
    for ours, theirs in (
        ("omega", "lam"),
        ("lam", "lam"),
        ("lam_align", "lam_align"),
        ("detach_target", "detach_target"),
    ):
        for part in (config, with_inverse):
            if hasattr(part, ours):
                hp[theirs] = getattr(part, ours)
    if name in ("sat", "mart", "iat", "uiat", "uiat-oneoff"):
        hp["smoothing"] = config.label_smoothing
    if hasattr(config, "target_statistics"):
        hp["running"] = config.target_statistics == "running"
    if name in ("mart", "hat"):
        hp["lam"] = config.beta
    if name == "hat":
        hp |= {"lam_helper": config.gamma, "helper": network(5)}
    if (inverse := getattr(with_inverse, "inverse", None)) is not None:
        hp |= {"beta": inverse.beta, "l1": inverse.reduction, "inv_eps": inverse.eps, "inv_step": inverse.step}
        hp |= {"inv_steps": inverse.steps} if hasattr(inverse, "steps") else {}
    if (momentum := getattr(with_inverse, "momentum", None)) is not None:
        hp |= {"momentum": momentum.enabled, "gamma": momentum.gamma, "momentum_start": momentum.start}
    if (one_off := getattr(with_inverse, "one_off", None)) is not None:
        hp |= {"one_off_at": one_off.epoch, "detach_clean": one_off.detach_clean}
    return hp


@dataclass
class Pair:
    """The fast method and its twin, each with its network, stepped side by side."""

    name: str
    config: MethodConfig
    lr: float = 0.05
    interior: bool = False
    labels: Tensor | None = None
    """Labels in place of those of `samples`."""
    model: nn.Module = field(default_factory=network)
    method: Method = field(init=False)
    twin_model: nn.Module = field(init=False)
    state: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.method = build(self.config)
        self.twin_model = copy.deepcopy(self.model)
        z = state_entry(self.method, "z")
        self.state = twins.new_state(torch.zeros(0) if z is None else z.clone())
        self.x, y = samples(interior=self.interior)
        self.y = y if self.labels is None else self.labels

    def step(self, clock: Clock, index: Tensor) -> tuple[Tensor, Tensor]:
        """Advance both by one update; return both losses."""
        x, y = self.x[index], self.y[index]
        loss = self.method(self.model, Batch(x, y, index), clock).total
        twin_name = TWIN_NAMES.get(self.name, self.name.replace("-", "_"))
        hp = twins.hp_for(twin_name, **twin_settings(self.name, self.config))
        draws = Draws(7, clock.epoch, clock.step)
        twin = twins.METHODS[twin_name](
            self.twin_model, x, y, index, clock.epoch, clock.epochs, self.state, draws, hp
        ).total
        for value, model in ((loss, self.model), (twin, self.twin_model)):
            update(model, value, self.lr)
        return loss.detach(), twin.detach()


def update(model: nn.Module, loss: Tensor, lr: float) -> None:
    """One plain gradient step."""
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.sub_(lr * gradient)


def state_entry(method: Method, ending: str) -> Tensor | None:
    """The buffer of a method's state with this last name, wherever in its parts it lives."""
    return next((v for k, v in method.state_dict().items() if k.split(".")[-1] == ending), None)


def soft_labels() -> Tensor:
    """Labels as of MixUp: a share between 0 and 1 of a second class, which may be the first again."""
    share = torch.rand((DATA.num_samples, 1), generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    first, second = (F.one_hot(torch.arange(DATA.num_samples) * k % 3, DATA.num_classes) for k in (1, 2))
    return share * first + (1 - share) * second


def check_against_twin(
    name: str, config: MethodConfig, epochs: int = EPOCHS, *, interior: bool = False, y: Tensor | None = None
) -> None:
    """Assert equality with the twin at every step: loss, z, p, weights and running statistics."""
    pair = Pair(name, config, interior=interior, labels=y)
    for clock, index in steps(epochs):
        loss, twin = pair.step(clock, index)
        torch.testing.assert_close(loss, twin, rtol=1e-5, atol=1e-6, msg=f"loss {loss} against {twin} at {clock}")
        z = state_entry(pair.method, "z")
        if z is not None:
            torch.testing.assert_close(z, pair.state["z"], rtol=0, atol=1e-5)
        check_table(pair)
        for ours, theirs in zip(pair.model.state_dict().items(), pair.twin_model.state_dict().items(), strict=True):
            torch.testing.assert_close(ours[1], theirs[1], rtol=1e-5, atol=1e-6, msg=f"{ours[0]} at {clock}")


def check_table(pair: Pair) -> None:
    """Assert that both remember the same samples and the same p."""
    log_p, seen = state_entry(pair.method, "log_p"), state_entry(pair.method, "seen")
    if log_p is None or seen is None:
        assert not pair.state["p"]
        return
    assert sorted(pair.state["p"]) == seen.nonzero().flatten().tolist()
    for index, p in pair.state["p"].items():
        torch.testing.assert_close(log_p[index].exp(), p.to(log_p.dtype), rtol=0, atol=1e-5)


def scaled_for_test(config: MethodConfig) -> MethodConfig:
    """Fewer attack steps, so that the literal loops stay quick; a larger ball, so that clips bite."""
    attack = getattr(config, "attack", None)
    if isinstance(attack, PGD):
        return replace(config, attack=replace(attack, eps=0.1, step=0.03, steps=3))  # type: ignore[type-var]
    if attack is not None:
        return replace(config, attack=replace(attack, eps=0.1))  # type: ignore[type-var]
    return config


CONFIGS = {name: scaled_for_test(config) for name, config in METHODS.items()}
assert isinstance(CONFIGS["gradalign"].attack, FGSM)
SOFT = [name for name in METHODS if not any(part in name for part in ("mart", "uiat"))]
"""Methods that take soft labels; MART compares classes, and the z of UIAT is per class."""
