"""Twins of the inverse adversarial examples and of the stored p: Eqs. 3-6, 8 and S2."""

import torch
from torch import Tensor, nn

from .attacks import project
from .basics import (
    HP,
    Draws,
    State,
    Step,
    crafting,
    cross_entropy,
    epoch_of,
    features,
    gradient,
    head,
    logits,
    total,
)


def fixed_features(model: nn.Module, x: Tensor, x_hat: Tensor, hp: HP) -> tuple[Tensor, Tensor] | None:
    """F(x) and F(x_hat), in this order, constant while the inverse adversary moves; nothing when beta = 0."""
    if hp["beta"] == 0:
        return None
    with torch.no_grad():
        return features(model, x), features(model, x_hat)


def inverse_losses(
    model: nn.Module, x_check: Tensor, y: Tensor, fixed: tuple[Tensor, Tensor] | None, hp: HP
) -> list[Tensor]:
    """Eq. 4, for each sample: CE + beta * (L1(F(x_check), F(x)) - L1(F(x_check), F(x_hat)))."""
    if fixed is None:
        return cross_entropy(logits(model, x_check), y)
    f_natural, f_adversarial = fixed
    f = features(model, x_check)
    ce = cross_entropy(head(model, f), y)
    losses = []
    for j in range(len(y)):
        to_natural = (f[j] - f_natural[j]).abs().flatten()
        to_adversarial = (f[j] - f_adversarial[j]).abs().flatten()
        if hp["l1"] == "mean":
            triplet = to_natural.mean() - to_adversarial.mean()
        else:
            triplet = to_natural.sum() - to_adversarial.sum()
        losses.append(ce[j] + hp["beta"] * triplet)
    return losses


def instance_inverse(model: nn.Module, x: Tensor, y: Tensor, x_hat: Tensor, draws: Draws, hp: HP) -> Tensor:
    """Alg. S1, lines 5-10 (Eq. 3): x_check of each sample."""
    with crafting(model, hp["crafting"]):
        fixed = fixed_features(model, x, x_hat, hp)
        x_check = (x + 0.001 * draws.normal("inverse", x)).clamp(0, 1)
        for _ in range(hp["inv_steps"]):
            x_check = x_check.detach().clone().requires_grad_()
            g = gradient(total(inverse_losses(model, x_check, y, fixed, hp)), x_check)
            x_check = project(x_check.detach() - hp["inv_step"] * g.sign(), x, hp["inv_eps"], "linf")
    return x_check.detach()


def add_universal(x: Tensor, y: Tensor, z: list[Tensor]) -> Tensor:
    """Alg. 1, line 7: x_check_j = clip(x_j + z_{y_j})."""
    return torch.stack([(x[j] + z[int(y[j])]).clamp(0, 1) for j in range(len(y))])


def update_universal(model: nn.Module, x: Tensor, y: Tensor, x_hat: Tensor, state: State, hp: HP) -> None:
    """Alg. 1, lines 4-12 (Eq. 6): one step of z_c for every class of the batch; the others are unchanged.

    With batch statistics every l_c depends on every z_c: the gradient is then of the sum, as in the attacks.
    """
    with crafting(model, hp["crafting"]):
        fixed = fixed_features(model, x, x_hat, hp)
        z = [z_c.detach().clone().requires_grad_() for z_c in state["z"]]
        losses = inverse_losses(model, add_universal(x, y, z), y, fixed, hp)
        new = [z_c.detach().clone() for z_c in z]
        for c in range(len(z)):
            members = [j for j in range(len(y)) if int(y[j]) == c]
            if not members:
                continue
            l_c = total([losses[j] for j in members]) if hp["crafting"] == "eval" else total(losses)
            g = torch.autograd.grad(l_c, z[c], retain_graph=True)[0]
            new[c] = (z[c].detach() - hp["inv_step"] * g.sign()).clamp(-hp["inv_eps"], hp["inv_eps"])
    state["z"] = torch.stack(new)


def universal_prediction(model: nn.Module, x: Tensor, y: Tensor, state: State, hp: HP) -> Tensor:
    """f(x_check) as probabilities, in the mode the model is in (batch statistics)."""
    return predict(model, add_universal(x, y, list(state["z"])), hp["detach_target"], hp["running"])


def predict(model: nn.Module, x: Tensor, detach: bool, running: bool = False) -> Tensor:
    with crafting(model, "eval" if running else "train"):
        p = logits(model, x).softmax(1)
    return p.detach() if detach or running else p


def momentum(fresh: Tensor, index: Tensor, epoch: int, epochs: int, state: State, hp: HP) -> Tensor:
    """Eq. 8, for each sample; p is stored from epoch T - 1 on."""
    if not hp["momentum"]:
        return fresh
    start = epoch_of(hp["momentum_start"], epochs)
    rows = []
    for j in range(len(index)):
        previous = state["p"].get(int(index[j]))
        if epoch < start or previous is None:
            rows.append(fresh[j])
        else:
            rows.append(hp["gamma"] * previous + (1 - hp["gamma"]) * fresh[j])
    if epoch >= start - 1:
        remember(index, rows, state)
    return torch.stack(rows)


def remember(index: Tensor, rows: list[Tensor], state: State) -> None:
    for j in range(len(index)):
        state["p"][int(index[j])] = rows[j].detach().clone()


def one_off(s: Step, x_hat: Tensor) -> Tensor:
    """Eq. S2: f(x) before T', f(x_check) at T', the p stored at T' afterwards."""
    once = epoch_of(s.hp["one_off_at"], s.epochs)
    if s.epoch < once:
        return predict(s.model, s.x, s.hp["detach_clean"], s.hp["running"])
    if s.epoch == once:
        update_universal(s.model, s.x, s.y, x_hat, s.state, s.hp)
        p = universal_prediction(s.model, s.x, s.y, s.state, s.hp)
        remember(s.index, list(p), s.state)
        return p
    stored = [s.state["p"].get(int(i)) for i in s.index]
    if any(row is None for row in stored):  # not seen at T': the whole batch goes through f, z is unchanged
        fresh = universal_prediction(s.model, s.x, s.y, s.state, s.hp)
        stored = [fresh[j] if row is None else row for j, row in enumerate(stored)]
        remember(s.index, stored, s.state)
    return torch.stack(stored)
