"""The literal references take the steps of the methods they stand for."""

import pytest
import torch

import uiat.methods.method as module
from tests.bench.setting import SETTING
from uiat.bench.baselines import literal_hat, literal_natural, literal_trades
from uiat.methods import METHODS
from uiat.models import ResNet
from uiat.types import Batch, Clock


@pytest.mark.parametrize("name", ["natural", "trades", "hat"])
def test_a_literal_step_is_the_methods(name: str) -> None:
    """The references are slow, not wrong: with the same start, a step is the method's."""
    torch.manual_seed(0)
    ours, theirs, helper = (ResNet(blocks=(1,), width=4).build(SETTING.spec).double() for _ in range(3))
    theirs.load_state_dict(ours.state_dict())
    g = torch.Generator().manual_seed(1)
    x, y = torch.rand(6, 3, 8, 8, generator=g, dtype=torch.double), torch.tensor([0, 1, 2, 0, 1, 2])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs)]
    literal = {"natural": literal_natural, "trades": literal_trades}
    step = literal[name](theirs, optimizers[1]) if name in literal else literal_hat(theirs, optimizers[1], helper)
    method = METHODS[name].build(SETTING.spec, helper=helper)
    original, noise = torch.randn_like, torch.randn(x.shape, generator=g, dtype=x.dtype)

    class Draws:
        def normal(self, purpose: str, like: torch.Tensor) -> torch.Tensor:
            return noise

    before = [parameter.detach().clone() for parameter in ours.parameters()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn_like", lambda like: noise)
        patch.setattr(module, "Draws", lambda *_: Draws())
        step(x, y)
        ours.train()
        method(ours, Batch(x, y), Clock(1, 0, 2)).total.backward()
        optimizers[0].step()
    assert torch.randn_like is original
    for mine, other, start in zip(ours.parameters(), theirs.parameters(), before, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-11)
        assert not torch.equal(mine, start)
