"""The loops of two well-known repositories, reduced to their structure, with the plug-in in place of their attack.

Each loop takes its step as an argument: with a literal one, as in the repository, and with the method of this package,
it makes the same updates and logs the same numbers. The robust training accuracy comes from the loss itself.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.integration.test_other_loops import ATTACK, SAMPLES, UNIVERSAL, network
from tests.twins.attacks import pgd
from uiat import SAT, TRADES, Batch, Clock, DataSpec, Loss, indexed
from uiat.attacks import PGD
from uiat.methods import Method
from uiat.rng import Draws

DATA, EPOCHS, BATCH, SEED = DataSpec(10, SAMPLES, (1, 8, 8)), 3, 30, 7
GAUSSIAN = PGD(eps=0.2, step=0.05, steps=2, loss="kl", start="gaussian")
Step = Callable[[nn.Module, Tensor, Tensor, Tensor, Clock], tuple[Tensor, Tensor]]
"""Returns the loss of a batch, and the logits on its adversarial examples."""
Log = list[dict[str, float]]


def batches() -> DataLoader[Any]:
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:SAMPLES] / 16).view(-1, 1, 8, 8), torch.tensor(labels[:SAMPLES])
    return DataLoader(indexed(TensorDataset(x, y)), BATCH, shuffle=True, generator=torch.Generator().manual_seed(1))


def robust_overfitting(model: nn.Module, step_of: Step) -> Log:
    """As in `train_cifar.py`: epochs from 0, a piecewise learning rate set at every step, sums over the epoch."""
    loader, optimizer = batches(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    log = []
    for epoch in range(EPOCHS):
        model.train()
        train_robust_loss = train_robust_acc = train_n = 0.0
        for i, (index, x, y) in enumerate(loader):
            t = epoch + (i + 1) / len(loader)
            optimizer.param_groups[0].update(lr=0.1 if t / EPOCHS < 0.5 else 0.01 if t / EPOCHS < 0.75 else 0.001)
            robust_loss, robust_output = step_of(model, index, x, y, Clock(epoch + 1, i, EPOCHS))
            optimizer.zero_grad()
            robust_loss.backward()
            optimizer.step()
            train_robust_loss += robust_loss.item() * len(y)
            train_robust_acc += (robust_output.max(1)[1] == y).sum().item()
            train_n += len(y)
        log.append({"loss": train_robust_loss / train_n, "robust_acc": train_robust_acc / train_n})
    return log


def trades(model: nn.Module, step_of: Step) -> Log:
    """As in `train_trades_cifar10.py`: epochs from 1, the learning rate set for an epoch, a function for one epoch."""
    loader, optimizer = batches(), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=2e-4)

    def train(epoch: int) -> Iterator[dict[str, float]]:
        model.train()
        for batch_idx, (index, data, target) in enumerate(loader):
            optimizer.zero_grad()
            loss, logits_adv = step_of(model, index, data, target, Clock(epoch, batch_idx, EPOCHS))
            loss.backward()
            optimizer.step()
            yield {"loss": loss.item(), "robust_acc": (logits_adv.argmax(1) == target).double().mean().item()}

    log: Log = []
    for epoch in range(1, EPOCHS + 1):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 if epoch < 3 else 0.005
        log += train(epoch)
    return log


def literal_sat(model: nn.Module, index: Tensor, x: Tensor, y: Tensor, clock: Clock) -> tuple[Tensor, Tensor]:
    draws = Draws(SEED, clock.epoch, clock.step)
    robust_output = model(pgd(model, x, y, draws, eps=ATTACK.eps, step=0.05, steps=ATTACK.steps))
    return F.cross_entropy(robust_output, y), robust_output


def literal_trades(model: nn.Module, index: Tensor, x: Tensor, y: Tensor, clock: Clock) -> tuple[Tensor, Tensor]:
    draws = Draws(SEED, clock.epoch, clock.step)
    x_adv = pgd(model, x, y, draws, eps=GAUSSIAN.eps, step=0.05, steps=GAUSSIAN.steps, loss="kl", start="gaussian")
    natural, robust = model(x), model(x_adv)
    kl = F.kl_div(robust.log_softmax(1), natural.softmax(1), reduction="batchmean")
    return F.cross_entropy(natural, y) + 6 * kl, robust


class PlugIn:
    """The step with a method of this package, which keeps the last loss."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.losses: list[Loss] = []

    def __call__(self, model: nn.Module, index: Tensor, x: Tensor, y: Tensor, clock: Clock) -> tuple[Tensor, Tensor]:
        self.losses.append(self.method(model, Batch(x, y, index), clock))
        logits_adv = self.losses[-1].logits_adv
        assert logits_adv is not None
        return self.losses[-1].total, logits_adv


@pytest.mark.parametrize(
    ("loop", "literal", "config"),
    [(robust_overfitting, literal_sat, SAT(ATTACK)), (trades, literal_trades, TRADES(attack=GAUSSIAN))],
    ids=["robust_overfitting", "TRADES"],
)
def test_the_plug_in_makes_the_steps_of_the_loop(loop: Callable[..., Log], literal: Step, config: Any) -> None:
    theirs = network().double()
    ours = deepcopy(theirs)
    before = deepcopy(theirs.state_dict())
    expected, found = loop(theirs, literal), loop(ours, PlugIn(config.build(DATA, seed=SEED).double()))
    for line, wanted in zip(found, expected, strict=True):
        assert line == pytest.approx(wanted, rel=1e-7)
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], rtol=1e-7, atol=1e-9, msg=name)
    assert not torch.equal(ours.get_parameter("model.1.weight"), before["model.1.weight"])


@pytest.mark.parametrize("loop", [robust_overfitting, trades])
def test_uiat_in_these_loops(loop: Callable[..., Log]) -> None:
    """The logged accuracy comes from the forward pass of the step; no further one is made."""
    model, plug_in, calls = network().double(), PlugIn(UNIVERSAL.build(DATA, seed=SEED).double()), [0]
    model.register_forward_pre_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))
    log = loop(model, plug_in)
    assert all(0 <= line["robust_acc"] <= 1 and line["loss"] > 0 for line in log)
    steps = EPOCHS * SAMPLES // BATCH
    assert len(plug_in.losses) == steps
    passes = ATTACK.steps + 2 + 1 + 1 + 1  # x̂, the features of x and x̂, z, p, f(x̂)
    assert calls[0] == steps * passes + 1, "the first step also looks for the feature layer"
    assert all(loss.x_adv is not None and loss.x_adv.shape == (BATCH, 1, 8, 8) for loss in plug_in.losses)
    state = plug_in.method.state_dict()
    assert state["target.table.seen"].all()
