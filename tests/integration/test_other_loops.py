"""The plug-in in other loops: DataLoader workers, torch.compile, gradient clipping, AdamW."""

import copy

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from uiat import Batch, Clock, DataSpec, Normalized, UIATOneOff, indexed
from uiat.attacks import PGD
from uiat.methods import IAT, UIAT, MethodConfig
from uiat.targets import InstanceInverse, Momentum, UniversalInverse

EPOCHS, SAMPLES, LARGEST = 3, 90, 0.5
ATTACK, INVERSE = PGD(eps=0.2, step=0.05, steps=2), UniversalInverse(eps=0.1, step=0.1)
UNIVERSAL = UIAT(attack=ATTACK, inverse=INVERSE, momentum=Momentum(start=2))


def network() -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Sequential(nn.Conv2d(1, 6, 3, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten())
    return Normalized(nn.Sequential(convolution, nn.Linear(54, 10)), [0.3], [0.4])


def train(config: MethodConfig, *, workers: int = 0, backend: str = "", dtype: torch.dtype) -> dict[str, Tensor]:
    """Train with AdamW and clipped gradients; return the losses and the final state."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images[:SAMPLES] / 16).view(-1, 1, 8, 8).to(dtype), torch.tensor(labels[:SAMPLES])
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(indexed(TensorDataset(x, y)), 30, shuffle=True, generator=order, num_workers=workers)
    model, method = network().to(dtype), config.build(DataSpec(10, SAMPLES, (1, 8, 8))).to(dtype)
    given = torch.compile(model, backend=backend) if backend else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, norms = [], []
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for step, (index, images, labels) in enumerate(loader):
            loss = method(given, Batch(images, labels, index), Clock(epoch, step, EPOCHS)).total
            optimizer.zero_grad()
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), LARGEST))
            left = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
            assert left <= LARGEST * 1.001
            optimizer.step()
            losses.append(loss.detach())
    assert max(norms) > LARGEST, "clipping has had nothing to do"
    assert losses[-1] < losses[0]
    return copy.deepcopy({"losses": torch.stack(losses), **model.state_dict(), **method.state_dict()})


def test_workers_change_nothing() -> None:
    alone, helped = (train(UNIVERSAL, workers=workers, dtype=torch.float32) for workers in (0, 2))
    assert alone.keys() == helped.keys()
    assert [name for name in alone if not torch.equal(alone[name], helped[name])] == []


@pytest.mark.parametrize(
    ("config", "backend"),
    [
        (UNIVERSAL, "aot_eager"),
        (IAT(attack=ATTACK, inverse=InstanceInverse(eps=0.1, step=0.05, steps=2)), "eager"),
        (UIATOneOff(attack=ATTACK, inverse=INVERSE), "eager"),
    ],
    ids=["uiat", "iat", "one-off"],
)
def test_a_compiled_model_trains_as_the_model_does(config: MethodConfig, backend: str) -> None:
    torch.compiler.reset()
    plain, compiled = (train(config, backend=which, dtype=torch.float64) for which in ("", backend))
    assert plain.keys() == compiled.keys()
    for name, expected in plain.items():
        torch.testing.assert_close(compiled[name], expected, rtol=1e-7, atol=1e-9, msg=name)
