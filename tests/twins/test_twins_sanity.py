"""The twins compared with the definitions: balls, modes, order of forwards, stored p, and the literal example."""

import pytest
import torch
from torch import Tensor

from examples.uiat_in_one_file import Hyper, State, uiat_step
from tests.twins import DEFAULTS, METHODS, hp_for, new_state
from tests.twins.attacks import pgd
from tests.twins.toys import SeededDraws, make_batch, make_net, make_z, settings


@pytest.mark.parametrize("crafting", ["eval", "train"])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_twin_leaves_the_model_as_found_and_has_a_gradient(name: str, crafting: str) -> None:
    net, (x, y, index) = make_net(), make_batch()
    hp = settings(name) if name == "natural" else settings(name, crafting=crafting)
    net.head.bias.requires_grad_(False)
    net.features[2].eval()  # a BatchNorm that the user froze
    modes = [m.training for m in net.modules()]
    x_before, state = x.clone(), new_state(make_z())
    for epoch in (1, 4, 5):
        result = METHODS[name](net, x, y, index, epoch, 5, state, SeededDraws(epoch), hp)
        assert result.total.isfinite()
        assert result.total.requires_grad
    assert [m.training for m in net.modules()] == modes
    assert not net.head.bias.requires_grad
    assert all(p.grad is None for p in net.parameters())
    assert torch.equal(x, x_before)
    assert not x.requires_grad
    result.total.backward()
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)


def test_totals_are_the_weighted_parts() -> None:
    weights = {"trades": {"kl": 6.0}, "mart": {"weighted_kl": 5.0}, "hat": {"kl": 2.5, "helper": 0.5}}
    weights |= {name: {"kl": 3.5} for name in ("iat", "uiat", "uiat_one_off", "rs_fgsm_uiat", "n_fgsm_uiat")}
    weights |= {"grad_align": {"align": 0.2}, "grad_align_uiat": {"kl": 3.5, "align": 0.2}}
    x, y, index = make_batch()
    for name in DEFAULTS:
        state = new_state(make_z())
        result = METHODS[name](make_net(), x, y, index, 1, 5, state, SeededDraws(1), settings(name))
        expected = sum(weights.get(name, {}).get(part, 1.0) * value for part, value in result.parts.items())
        torch.testing.assert_close(result.total, expected)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("loss", ["ce", "kl", "margin"])
@pytest.mark.parametrize("start", ["uniform", "gaussian", "none"])
def test_pgd_stays_in_its_ball(norm: str, loss: str, start: str) -> None:
    net, (x, y, _) = make_net().eval(), make_batch()
    x_hat = pgd(net, x, y, SeededDraws(0), eps=0.1, step=0.04, steps=5, loss=loss, norm=norm, start=start)
    delta = (x_hat - x).flatten(1)
    size = delta.abs().amax(1) if norm == "linf" else delta.norm(dim=1)
    assert float(size.max()) <= 0.1 + 1e-12
    assert float(x_hat.min()) >= 0
    assert float(x_hat.max()) <= 1


def test_one_off_forwards_and_memory() -> None:
    net, (x, y, index), z = make_net(), make_batch(), make_z()
    state, hp = new_state(z), hp_for("uiat_one_off", one_off_at=3)

    def forwards(epoch: int, rows: slice) -> list[Tensor]:
        net.seen = []
        METHODS["uiat_one_off"](net, x[rows], y[rows], index[rows], epoch, 9, state, SeededDraws(epoch), hp)
        return net.seen

    seen = forwards(2, slice(0, 4))
    assert len(seen) == 2
    assert torch.equal(seen[0], x[:4])  # f(x) first, then f(x_hat)
    assert torch.equal(state["z"], z)
    assert state["p"] == {}
    assert len(forwards(3, slice(0, 4))) == 2
    assert not torch.equal(state["z"], z)
    assert torch.equal(state["z"][2], z[2])
    z, p = state["z"].clone(), {i: row.clone() for i, row in state["p"].items()}
    assert sorted(p) == [10, 11, 12, 13]
    assert len(forwards(4, slice(0, 4))) == 1
    assert len(forwards(4, slice(2, 6))) == 2  # 14 and 15 are new: the whole batch goes through f once
    assert torch.equal(state["z"], z)
    assert all(torch.equal(state["p"][i], p[i]) for i in p)
    assert sorted(state["p"]) == [10, 11, 12, 13, 14, 15]
    assert len(forwards(5, slice(2, 6))) == 1


def test_order_of_the_forwards() -> None:
    x, y, index = make_batch()
    for name, count in {"trades": 2, "mart": 2, "hat": 3, "iat": 2, "uiat": 2, "grad_align_uiat": 4}.items():
        net = make_net()
        METHODS[name](net, x, y, index, 1, 9, new_state(make_z()), SeededDraws(0), settings(name))
        assert len(net.seen) == count
    torch.testing.assert_close(net.seen[0], x)  # the target, then x_hat, then the alignment at x
    torch.testing.assert_close(net.seen[2], x)


def test_the_target_carries_gradient_only_when_asked() -> None:
    x, y, index = make_batch()
    for name, option in [
        ("uiat", "detach_target"),
        ("iat", "detach_target"),
        ("uiat_one_off", "detach_clean"),
    ]:
        totals, gradients = [], []
        for detach in (True, False):
            net = make_net()
            hp = hp_for(name, **{option: detach})
            out = METHODS[name](net, x, y, index, 1, 9, new_state(make_z()), SeededDraws(0), hp)
            totals.append(out.total.detach())
            gradients.append(torch.autograd.grad(out.total, net.head.weight)[0])
        torch.testing.assert_close(totals[0], totals[1])
        assert not torch.allclose(gradients[0], gradients[1])


@pytest.mark.parametrize("one_off", [False, True])
def test_the_example_is_the_twin(one_off: bool) -> None:
    x, y, index = make_batch()
    nets, epochs, eps = [make_net(), make_net()], 4, 0.2
    state, other = new_state(make_z()), State(make_z())
    hyper = Hyper(eps=eps, alpha=0.05, steps=3, eps_inv=0.1, alpha_inv=0.03, momentum_from=0.5, once_at=0.5)
    changes = {"eps": eps, "step": 0.05, "steps": 3, "inv_eps": 0.1, "inv_step": 0.03}
    name, when = ("uiat_one_off", "one_off_at") if one_off else ("uiat", "momentum_start")
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    for epoch in range(1, epochs + 1):
        for rows in ([0, 1, 2, 5], [3, 4], [1, 2, 3, 4, 5]) if epoch > 2 else ([0, 1, 2], [3, 4]):
            batch, draws = (x[rows], y[rows], index[rows]), SeededDraws(epoch)
            hp = hp_for(name, **changes, **{when: 0.5})
            a = METHODS[name](nets[0], *batch, epoch, epochs, state, draws, hp).total
            start = eps * draws.uniform("attack", batch[0])
            b = uiat_step(nets[1], *batch, epoch, epochs, other, hyper, one_off, start)
            torch.testing.assert_close(a, b)
            for loss, optimizer in zip((a, b), optimizers, strict=True):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    torch.testing.assert_close(nets[0].state_dict(), nets[1].state_dict())
    torch.testing.assert_close(state["z"], other.z)
    assert state["p"].keys() == other.p.keys()
    torch.testing.assert_close([state["p"][i] for i in state["p"]], [other.p[i] for i in state["p"]])
