"""The twins compared with values computed by hand."""

from math import exp, log

import pytest
import torch
from torch import Tensor, nn

from tests.twins import METHODS, epoch_of, hp_for, new_state
from tests.twins.attacks import pgd
from tests.twins.inverse import inverse_losses, momentum, update_universal
from tests.twins.toys import Identity, SeededDraws, make_z


def test_pgd_by_hand() -> None:
    # f(x) = x, so CE rises along (softmax - onehot): away from y, towards the other.
    x, y = torch.tensor([[0.5, 0.5], [0.02, 0.9]], dtype=torch.float64), torch.tensor([0, 1])
    x_hat = pgd(Identity(), x, y, SeededDraws(0), eps=0.1, step=0.04, steps=3, start="none")
    expected = torch.tensor([[0.4, 0.6], [0.12, 0.8]], dtype=torch.float64)
    torch.testing.assert_close(x_hat, expected)
    x_hat = pgd(Identity(), x, y, SeededDraws(0), eps=1.0, step=0.05 * 2**0.5, steps=1, start="none", norm="l2")
    expected = torch.tensor([[0.45, 0.55], [0.07, 0.85]], dtype=torch.float64)
    torch.testing.assert_close(x_hat, expected)


def test_single_steps_by_hand() -> None:
    x, y = torch.tensor([[0.5, 0.5], [0.02, 0.9]], dtype=torch.float64), torch.tensor([0, 1])
    linear = nn.Linear(2, 2, bias=False).double()
    linear.weight.data = torch.eye(2, dtype=torch.float64)
    eta, s = (
        SeededDraws(4).uniform("attack", x),
        torch.tensor([[-1.0, 1.0], [1.0, -1.0]], dtype=torch.float64),
    )
    seen: list[Tensor] = []
    hook = linear.register_forward_pre_hook(lambda m, a: seen.append(a[0].detach().clone()))
    for name, expected in [
        ("rs_fgsm", (x + (((x + 0.1 * eta).clamp(0, 1) + 0.125 * s) - x).clamp(-0.1, 0.1)).clamp(0, 1)),
        ("n_fgsm", ((x + 0.2 * eta).clamp(0, 1) + 0.1 * s).clamp(0, 1)),
        ("grad_align", (x + 0.1 * s).clamp(0, 1)),
    ]:
        seen.clear()
        METHODS[name](linear, x, y, y, 1, 1, new_state(x), SeededDraws(4), hp_for(name, eps=0.1))
        torch.testing.assert_close(seen[1], expected)  # the first forward is for the step, the second is f(x_hat)
    torch.testing.assert_close(seen[2], x)
    torch.testing.assert_close(seen[3], x + 0.1 * SeededDraws(4).uniform("align", x))
    hook.remove()


def test_inverse_loss_by_hand() -> None:
    f = torch.tensor([[0.5, 0.2]], dtype=torch.float64)
    fixed = (torch.tensor([[0.4, 0.2]], dtype=torch.float64), torch.tensor([[0.1, 0.9]], dtype=torch.float64))
    value = inverse_losses(Identity(), f, torch.tensor([0]), fixed, {"beta": 2.0, "l1": "mean"})[0]
    ce = log(1 + exp(0.2 - 0.5))
    assert float(value) == pytest.approx(ce + 2 * (0.1 / 2 - (0.4 + 0.7) / 2))
    value = inverse_losses(Identity(), f, torch.tensor([0]), fixed, {"beta": 2.0, "l1": "sum"})[0]
    assert float(value) == pytest.approx(ce + 2 * (0.1 - (0.4 + 0.7)))


def test_z_by_hand() -> None:
    # Classes 0 and 1 occur, 2 does not. A pixel where x + z is outside [0, 1] has no gradient.
    x = torch.tensor([[0.5, 0.5, 0.5], [0.995, 0.5, 0.5], [0.5, 1.0, 0.0]], dtype=torch.float64)
    z = torch.tensor([[0.01, 0, 0], [0, 0.01, -0.09], [0.3, 0.3, 0.3]], dtype=torch.float64)
    state, hp = new_state(z), hp_for("uiat", beta=0.0, inv_eps=0.1, inv_step=0.05)
    update_universal(Identity(), x, torch.tensor([0, 0, 1]), x, state, hp)
    expected = torch.tensor([[0.06, -0.05, -0.05], [-0.05, 0.01, -0.09], [0.3, 0.3, 0.3]], dtype=torch.float64)
    torch.testing.assert_close(state["z"], expected)


def test_features_can_overrule_the_cross_entropy() -> None:
    # Towards F(x) (at z = 0.02 that is down) and away from F(x_hat): with a large beta, both decide over CE.
    x, y = torch.tensor([[0.5, 0.5]], dtype=torch.float64), torch.tensor([0])
    x_hat = torch.tensor([[0.6, 0.4]], dtype=torch.float64)
    state = new_state(torch.tensor([[0.02, 0.02], [0, 0]], dtype=torch.float64))
    update_universal(Identity(), x, y, x_hat, state, hp_for("uiat", beta=9.0, inv_eps=0.1, inv_step=0.05))
    # Pixel 0: between x and x_hat, both terms push down. Pixel 1: they cancel, and CE pushes down.
    torch.testing.assert_close(state["z"][0], torch.tensor([-0.03, -0.03], dtype=torch.float64))


@pytest.mark.parametrize(
    ("when", "epochs", "expected"),
    [(0.75, 100, 75), (0.57, 100, 57), (0.75, 30, 22), (80, 100, 80), (0.8, 1, 1)],
)
def test_epoch_of(when: float, epochs: int, expected: int) -> None:
    assert epoch_of(when, epochs) == expected


def test_momentum_by_hand() -> None:
    state, index, hp = (
        new_state(make_z()),
        torch.tensor([7, 8]),
        hp_for("uiat", gamma=0.9, momentum_start=0.75),
    )
    rows = {e: torch.tensor([[a, 1 - a], [0.5, 0.5]]) for e, a in {1: 0.1, 2: 0.2, 3: 0.6, 4: 1.0}.items()}
    assert torch.equal(momentum(rows[1], index, 1, 4, state, hp), rows[1])
    assert state["p"] == {}  # T = 3: epoch 1 is not stored, epoch 2 is
    assert torch.equal(momentum(rows[2], index, 2, 4, state, hp), rows[2])
    assert set(state["p"]) == {7, 8}
    p = momentum(rows[3], index, 3, 4, state, hp)
    torch.testing.assert_close(p[0], torch.tensor([0.9 * 0.2 + 0.1 * 0.6, 0.9 * 0.8 + 0.1 * 0.4]))
    p = momentum(rows[4], torch.tensor([7, 9]), 4, 4, state, hp)
    torch.testing.assert_close(p[0, 0], torch.tensor(0.9 * (0.9 * 0.2 + 0.1 * 0.6) + 0.1 * 1.0))
    assert torch.equal(p[1], rows[4][1])  # 9 was never seen
    assert set(state["p"]) == {7, 8, 9}


def test_trades_mart_and_hat_by_hand() -> None:
    # f(x) = x, and no step: x_hat is the start, here x + 0.001 N(0, 1), which no step projects into the ball.
    x, y = torch.tensor([[0.5, 0.3, 0.1], [0.2, 0.9, 0.4]], dtype=torch.float64), torch.tensor([0, 2])
    x_hat = x + 0.001 * SeededDraws(2).normal("attack", x)
    far = x + 2 * (x_hat - x)
    expected = {"trades": 0.0, "mart": 0.0, "hat": 0.0}
    for j in range(2):
        p, q, r = ([exp(v) / sum(map(exp, row[j].tolist())) for v in row[j].tolist()] for row in (x, x_hat, far))
        label, kl = int(y[j]), sum(a * log(a / b) for a, b in zip(p, q, strict=True))
        other = max(q[k] for k in range(3) if k != label)
        expected["trades"] += (-log(p[label]) + 6 * kl) / 2
        expected["mart"] += (-log(q[label]) - log(1.0001 - other) + 5 * kl * (1.0000001 - p[label])) / 2
        expected["hat"] += (-log(p[label]) + 2.5 * kl - 0.5 * log(r[q.index(max(q))])) / 2
    for name, value in expected.items():
        helper = {"helper": Identity()} if name == "hat" else {}
        hp = hp_for(name, eps=0.001, steps=0, **helper)
        result = METHODS[name](Identity(), x, y, y, 1, 1, new_state(x), SeededDraws(2), hp)
        assert float(result.total) == pytest.approx(value, rel=1e-9)
