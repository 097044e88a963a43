"""What a target stores, and when."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.support.contract_setting import DATA, network, samples
from uiat.errors import UserError
from uiat.methods import UIAT, UIATOneOff
from uiat.rng import Draws
from uiat.targets import (
    InstanceInverse,
    InstanceInverseTarget,
    Momentum,
    OneOff,
    OneOffTarget,
    PredictionTable,
    universal,
)
from uiat.targets.remembered import MomentumTarget
from uiat.targets.universal import UniversalInverse, UniversalInverseTarget
from uiat.types import Batch, Clock, View


def view(members: list[int], index: bool = True, dtype: torch.dtype = torch.float32) -> View:
    x, y = samples(dtype)
    which = torch.tensor(members)
    batch = Batch(x[which], y[which], which if index else None)
    return View(network(dtype=dtype), batch, batch.x, Draws(), "eval")


def test_z_starts_small_is_drawn_once_a_run_and_follows_the_seed() -> None:
    first, again, other = (UniversalInverseTarget(UniversalInverse(), DATA, seed=s).z for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 0.0005 < float(first.std()) < 0.002


def test_z_starts_within_a_tiny_ball() -> None:
    assert UniversalInverseTarget(UniversalInverse(eps=1e-4), DATA).z.abs().max() <= 1e-4


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_z_stays_in_its_ball(norm: str) -> None:
    target = UniversalInverseTarget(UniversalInverse(eps=0.05, step=0.04, norm=norm), DATA)  # type: ignore[arg-type]
    for step in range(4):
        v = view([0, 1, 2, 3, 4])
        target.prepare(v.model, [v], Clock(1, step, 1))
    lengths = target.z.flatten(1).norm(dim=1, p=2 if norm == "l2" else torch.inf)
    assert lengths.max() <= 0.05 + 1e-6
    assert lengths[:3].min() > 0.03
    assert lengths[3] < 0.03, "no sample of class 3 was seen"


def test_z_of_micro_batches_is_z_of_the_batch() -> None:
    """In double precision, where no sign of a slope is left to rounding."""
    targets = [UniversalInverseTarget(UniversalInverse(), DATA).double() for _ in range(2)]
    whole, *parts = (view(m, dtype=torch.float64) for m in ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2], [3, 4, 5, 6]))
    targets[0].prepare(whole.model, [whole], Clock(1, 0, 1))
    targets[1].prepare(parts[0].model, parts, Clock(1, 0, 1))
    torch.testing.assert_close(targets[0].z, targets[1].z, rtol=0, atol=1e-12)


def test_processes_exchange_only_z_of_the_classes_in_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process holds classes 0 and 2, another one class 4: the 1,000 z are not sent."""
    spec = replace(DATA, num_classes=1000)
    target = UniversalInverseTarget(UniversalInverse(beta=0), spec)
    before, sent = target.z.clone(), []

    def total(value: torch.Tensor) -> torch.Tensor:
        sent.append(tuple(value.shape))
        return (
            value.index_fill(0, torch.tensor(4), 1.0) if value.ndim == 1 else value.index_fill(0, torch.tensor(2), 1.0)
        )

    monkeypatch.setattr("uiat.targets.universal.all_reduce_sum", total)
    x = torch.rand(4, *DATA.shape)
    padding = Batch(x[:1], torch.tensor([7]), padding=True)  # has weight zero, and so has its class
    model = nn.Sequential(nn.Flatten(), nn.Linear(DATA.numel, 1000))
    parts = [Batch(x, torch.tensor([2, 0, 2, 0])), padding]
    views = [View(model, part, part.x, Draws(), "eval") for part in parts]
    target.prepare(model, views, Clock(1, 0, 1))
    assert sent == [(1000,), (3, *DATA.shape)]
    moved = (target.z != before).flatten(1).any(dim=1)
    assert moved.nonzero().flatten().tolist() == [0, 2, 4]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_all_rows_at_once_give_the_bits_of_the_rows_of_the_batch(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batches with class 3 absent, and one that counts for nothing, whose class is absent too."""
    found = []
    for few in (0, 128):
        monkeypatch.setattr(universal, "FEW_CLASSES", few)
        target = UniversalInverseTarget(UniversalInverse(norm=norm), DATA)  # type: ignore[arg-type]
        target.z[3, 0, 0, 0] = -0.0
        first = target.z.clone()
        for step, members in enumerate(([0, 1, 2, 4], [5, 6, 0, 1])):
            parts = [view(members[:2]), view(members[2:]), view([3])]
            parts[2].batch = replace(parts[2].batch, y=torch.tensor([3]), padding=True)
            target.prepare(parts[0].model, parts, Clock(1, step, 1))
        found.append(target.z)
        assert torch.equal(first[3].view(torch.int32), target.z[3].view(torch.int32))
        assert (first[:3] != target.z[:3]).flatten(1).any(dim=1).all()
    assert torch.equal(found[0].view(torch.int32), found[1].view(torch.int32))


def test_universal_inverse_lowers_the_loss_of_most() -> None:
    """Eq. 5, on the batch that z was made for."""
    target = UniversalInverseTarget(UniversalInverse(eps=0.1, step=0.02, beta=0), DATA)
    v = view(list(range(14)))
    for step in range(8):
        target.prepare(v.model, [v], Clock(1, step, 1))
    model, y = v.model.eval(), v.batch.y
    with torch.no_grad():
        x_inv = (v.batch.x + target.z[y]).clamp(0, 1)
        lower = model(x_inv).log_softmax(1).gather(1, y[:, None]) > model(v.batch.x).log_softmax(1).gather(
            1, y[:, None]
        )
    assert lower.double().mean() > 0.8


def test_table_counts_its_writes_and_needs_indices() -> None:
    table = PredictionTable(DATA)
    v = view([3, 5])
    assert not table.recall(v)[1].any()
    table.store(v, torch.tensor([[0.0, -1.0, -2.0, -3.0]] * 2))
    assert table.recall(v)[1].all()
    assert table.version == 1
    assert table.seen.nonzero().flatten().tolist() == [3, 5]
    with pytest.raises(UserError, match="no sample indices"):
        table.recall(view([1], index=False))


def test_momentum_before_t_minus_one_touches_no_table() -> None:
    target = MomentumTarget(UniversalInverseTarget(UniversalInverse(), DATA), Momentum(start=5), DATA)
    target(view([0, 1], index=False), Clock(3, 0, 9))
    assert target.table.version == 0
    target(view([0, 1]), Clock(4, 0, 9))
    assert target.table.version == 1


def test_a_full_table_needs_no_forward_after_the_one_off() -> None:
    target = OneOffTarget(UniversalInverseTarget(UniversalInverse(), DATA), OneOff(epoch=2), DATA)
    everyone = view(list(range(14)))
    target(everyone, Clock(2, 0, 4))
    calls = []
    handle = everyone.model.register_forward_hook(lambda *args: calls.append(1))
    stored = target(everyone, Clock(3, 0, 4))
    handle.remove()
    assert not calls
    assert torch.equal(stored, target.table.log_p)


def test_one_off_composes_with_instance_wise_inverses() -> None:
    """Nothing ties the wrapper to the universal target: a sample unseen after T' gets its own inverse then."""
    target = OneOffTarget(InstanceInverseTarget(InstanceInverse(steps=1)), OneOff(epoch=2), DATA)
    target.prepare((v := view([0, 1, 2])).model, [v], Clock(2, 0, 4))
    target(v, Clock(2, 0, 4))
    target(view([2, 3]), Clock(3, 0, 4))
    assert target.table.seen.nonzero().flatten().tolist() == [0, 1, 2, 3]


def test_state_has_documented_names() -> None:
    assert set(UIAT().build(DATA).state_dict()) == {"target.inner.z", "target.table.log_p", "target.table.seen"}
    assert set(UIATOneOff().build(DATA).state_dict()) == {"target.inner.z", "target.table.log_p", "target.table.seen"}
    assert set(UIAT(momentum=Momentum(enabled=False)).build(DATA).state_dict()) == {"target.z"}
