"""UIAT over three epochs equals `examples/uiat_in_one_file.py` step by step: loss, z, p, in double precision."""

import copy

import pytest
import torch

from examples.uiat_in_one_file import Hyper, Net, State, uiat_step
from tests.support.contract_setting import DATA, samples, state_entry, update
from uiat.attacks import PGD
from uiat.methods import UIAT, UIATOneOff
from uiat.rng import Draws
from uiat.targets import Momentum, OneOff, UniversalInverse
from uiat.types import Batch, Clock

EPOCHS = 3
HYPER = Hyper(eps=0.1, alpha=0.03, steps=3, eps_inv=0.05, alpha_inv=0.04, momentum_from=2, once_at=2)


def batches(epoch: int) -> list[list[int]]:
    """Class 2 (every third sample) is absent from the first batch; sample 11 is first met in the last epoch."""
    return [[0, 1, 3, 4, 6], [2, 5, 7, 8, 9, 10] + ([11] if epoch == EPOCHS else [])]


@pytest.mark.parametrize("one_off", [False, True])
def test_package_equals_the_one_file(one_off: bool) -> None:
    attack = PGD(eps=HYPER.eps, step=HYPER.alpha, steps=HYPER.steps)
    inverse = UniversalInverse(eps=HYPER.eps_inv, step=HYPER.alpha_inv)
    config: UIAT | UIATOneOff = UIAT(attack=attack, inverse=inverse, momentum=Momentum(start=HYPER.momentum_from))
    if one_off:
        config = UIATOneOff(attack=attack, inverse=inverse, one_off=OneOff(epoch=HYPER.once_at))
    method = config.build(DATA, seed=4).double()
    torch.manual_seed(2)
    model = Net(DATA.numel, DATA.num_classes, n=12).double().train()
    literal = copy.deepcopy(model)
    z = state_entry(method, "z")
    assert z is not None
    state = State(z=z.clone())
    x, y = samples()
    untouched = z[3].clone()
    for epoch in range(1, EPOCHS + 1):
        for step, members in enumerate(batches(epoch)):
            index = torch.tensor(members)
            before = state.z.clone()
            start = HYPER.eps * Draws(4, epoch, step).uniform("attack", x[index])
            expected = uiat_step(literal, x[index], y[index], index, epoch, EPOCHS, state, HYPER, one_off, start=start)
            loss = method(model, Batch(x[index], y[index], index), Clock(epoch, step, EPOCHS)).total
            torch.testing.assert_close(loss, expected, rtol=0, atol=1e-5)
            torch.testing.assert_close(z, state.z, rtol=0, atol=1e-5)
            absent = [c for c in range(DATA.num_classes) if c not in y[index].tolist()]
            assert torch.equal(z[absent], before[absent])
            check_p(method, state)
            update(model, loss, 0.1)
            update(literal, expected, 0.1)
    assert torch.equal(z[3], untouched)
    assert 11 in state.p


def check_p(method: torch.nn.Module, state: State) -> None:
    log_p, seen = state_entry(method, "log_p"), state_entry(method, "seen")  # type: ignore[arg-type]
    assert log_p is not None
    assert seen is not None
    assert sorted(state.p) == seen.nonzero().flatten().tolist()
    for sample, p in state.p.items():
        torch.testing.assert_close(log_p[sample].exp(), p, rtol=0, atol=1e-5)
