"""Twins of the methods: attack, then target, then the terms of the loss, with the forwards in this order."""

import torch
from torch import Tensor

from .attacks import pgd
from .basics import (
    Result,
    Step,
    Twin,
    crafting,
    cross_entropy,
    kl_logits,
    logits,
    mean,
    twin,
)
from .inverse import instance_inverse, momentum, one_off, predict, universal_prediction, update_universal
from .single_step import grad_align, grad_align_uiat, n_fgsm, n_fgsm_uiat, rs_fgsm, rs_fgsm_uiat
from .terms import only_adversarial, pulled


def attack(s: Step, loss: str) -> Tensor:
    hp = {name: s.hp[name] for name in ("eps", "step", "steps", "norm", "start")}
    return pgd(s.model, s.x, s.y, s.draws, loss=loss, mode=s.hp["crafting"], **hp)


@twin
def natural(s: Step) -> Result:
    ce = mean(cross_entropy(logits(s.model, s.x), s.y))
    return Result(ce, {"ce": ce})


@twin
def sat(s: Step) -> Result:
    """Eq. 1."""
    return only_adversarial(s, attack(s, "ce"))


@twin
def trades(s: Step) -> Result:
    """Eq. 2."""
    x_hat = attack(s, "kl")
    out = logits(s.model, s.x)
    out_hat = logits(s.model, x_hat)
    ce = mean(cross_entropy(out, s.y))
    kl = mean(kl_logits(out, out_hat))
    return Result(ce + s.hp["lam"] * kl, {"ce": ce, "kl": kl})


@twin
def mart(s: Step) -> Result:
    """Boosted CE on x_hat, and KL weighted by 1 - f_y(x)."""
    x_hat = attack(s, "ce")
    out = logits(s.model, s.x)
    out_hat = logits(s.model, x_hat)
    boosted, weighted = [], []
    ce = cross_entropy(out_hat, s.y, s.hp["smoothing"])
    for j in range(len(s.y)):
        label = int(s.y[j])
        p, p_hat = out[j].softmax(0), out_hat[j].softmax(0)
        runner_up = torch.stack([p_hat[k] for k in range(len(p_hat)) if k != label]).max()
        boosted.append(ce[j] - (1.0001 - runner_up + 1e-12).log())
        kl = kl_logits(out[j : j + 1], out_hat[j : j + 1])[0]
        weighted.append(kl * (1.0000001 - p[label]))
    bce, weighted_kl = mean(boosted), mean(weighted)
    return Result(bce + s.hp["lam"] * weighted_kl, {"bce": bce, "weighted_kl": weighted_kl})


@twin
def hat(s: Step) -> Result:
    """TRADES, and the helper's prediction on x_hat as the label of a point twice as far."""
    x_hat = attack(s, "kl")
    helper = s.hp["helper"]
    with crafting(helper, "eval"), torch.no_grad():
        label = logits(helper, x_hat).argmax(1)
    out = logits(s.model, s.x)
    out_hat = logits(s.model, x_hat)
    out_far = logits(s.model, s.x + 2 * (x_hat - s.x))
    ce = mean(cross_entropy(out, s.y))
    kl = mean(kl_logits(out, out_hat))
    far = mean(cross_entropy(out_far, label))
    return Result(ce + s.hp["lam"] * kl + s.hp["lam_helper"] * far, {"ce": ce, "kl": kl, "helper": far})


@twin
def iat(s: Step) -> Result:
    """Algorithm S1 (and Eq. 8 when hp["momentum"])."""
    x_hat = attack(s, "ce")
    x_check = instance_inverse(s.model, s.x, s.y, x_hat, s.draws, s.hp)
    fresh = predict(s.model, x_check, s.hp["detach_target"], s.hp["running"])
    return pulled(s, x_hat, momentum(fresh, s.index, s.epoch, s.epochs, s.state, s.hp))


@twin
def uiat(s: Step) -> Result:
    """Algorithm 1."""
    x_hat = attack(s, "ce")
    update_universal(s.model, s.x, s.y, x_hat, s.state, s.hp)
    fresh = universal_prediction(s.model, s.x, s.y, s.state, s.hp)
    return pulled(s, x_hat, momentum(fresh, s.index, s.epoch, s.epochs, s.state, s.hp))


@twin
def uiat_one_off(s: Step) -> Result:
    """Eq. S1."""
    x_hat = attack(s, "ce")
    return pulled(s, x_hat, one_off(s, x_hat))


METHODS: dict[str, Twin] = {
    "natural": natural,
    "sat": sat,
    "trades": trades,
    "mart": mart,
    "hat": hat,
    "iat": iat,
    "uiat": uiat,
    "uiat_one_off": uiat_one_off,
    "rs_fgsm": rs_fgsm,
    "n_fgsm": n_fgsm,
    "grad_align": grad_align,
    "rs_fgsm_uiat": rs_fgsm_uiat,
    "n_fgsm_uiat": n_fgsm_uiat,
    "grad_align_uiat": grad_align_uiat,
}
