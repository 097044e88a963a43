"""Twins of the single-step methods, alone and with the one-off universal inverse (Eq. S5)."""

from torch import Tensor

from .attacks import fgsm_attack, n_fgsm_attack, rs_fgsm_attack
from .basics import Result, Step, cross_entropy, gradient, logits, mean, twin
from .inverse import one_off
from .terms import only_adversarial, pulled


def rs_attack(s: Step) -> Tensor:
    hp = s.hp
    return rs_fgsm_attack(s.model, s.x, s.y, s.draws, eps=hp["eps"], alpha=hp["alpha"], mode=hp["crafting"])


def n_attack(s: Step) -> Tensor:
    hp = {name: s.hp[name] for name in ("eps", "alpha", "noise")}
    return n_fgsm_attack(s.model, s.x, s.y, s.draws, mode=s.hp["crafting"], **hp)


def zero_attack(s: Step) -> Tensor:
    hp = s.hp
    return fgsm_attack(s.model, s.x, s.y, eps=hp["eps"], alpha=hp["alpha"], mode=hp["crafting"])


def aligned(s: Step, result: Result) -> Result:
    """Add lambda_align * (1 - mean cosine of the input gradients at x and at a random point of the ball)."""
    x = s.x.detach().clone().requires_grad_()
    g = gradient(mean(cross_entropy(logits(s.model, x), s.y)), x).detach()
    point = (s.x + s.hp["eps"] * s.draws.uniform("align", s.x)).detach().requires_grad_()
    g_point = gradient(mean(cross_entropy(logits(s.model, point), s.y)), point, create_graph=True)
    cosines = []
    for j in range(len(s.y)):
        a, b = g[j].flatten(), g_point[j].flatten()
        if bool(a.any()) and bool(b.any()):
            cosines.append((a * b).sum() / (a.norm() * b.norm()))
    align = 1 - mean(cosines) if cosines else result.total.new_zeros(())
    return Result(result.total + s.hp["lam_align"] * align, {**result.parts, "align": align})


@twin
def rs_fgsm(s: Step) -> Result:
    return only_adversarial(s, rs_attack(s))


@twin
def n_fgsm(s: Step) -> Result:
    return only_adversarial(s, n_attack(s))


@twin
def grad_align(s: Step) -> Result:
    return aligned(s, only_adversarial(s, zero_attack(s)))


@twin
def rs_fgsm_uiat(s: Step) -> Result:
    """Eq. S5."""
    x_hat = rs_attack(s)
    return pulled(s, x_hat, one_off(s, x_hat))


@twin
def n_fgsm_uiat(s: Step) -> Result:
    x_hat = n_attack(s)
    return pulled(s, x_hat, one_off(s, x_hat))


@twin
def grad_align_uiat(s: Step) -> Result:
    x_hat = zero_attack(s)
    return aligned(s, pulled(s, x_hat, one_off(s, x_hat)))
