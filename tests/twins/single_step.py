"""Twins of the single-step methods, with and without the one-off universal inverse (Eq. S5)."""

from torch import Tensor

from .attacks import fgsm_attack, gradient_at, n_fgsm_attack, rs_fgsm_attack
from .basics import Result, Step, cross_entropy, gradient, logits, mean, twin
from .inverse import one_off
from .terms import only_adversarial, pulled


def rs_attack(s: Step) -> Tensor:
    hp = s.hp
    return rs_fgsm_attack(s.model, s.x, s.y, s.draws, eps=hp["eps"], alpha=hp["alpha"], mode=hp["crafting"])


def n_attack(s: Step) -> Tensor:
    hp = {name: s.hp[name] for name in ("eps", "alpha", "noise")}
    return n_fgsm_attack(s.model, s.x, s.y, s.draws, mode=s.hp["crafting"], **hp)


def zero_attack(s: Step) -> tuple[Tensor, Tensor]:
    """FGSM from x itself, and the gradient at x that it used."""
    g = gradient_at(s.model, s.x, s.y, s.hp["crafting"])
    return fgsm_attack(s.x, g, eps=s.hp["eps"], alpha=s.hp["alpha"]), g


def aligned(s: Step, g: Tensor, result: Result) -> Result:
    """Add lambda_align * (1 - mean cosine of the input gradients at x, FGSM's own, and at a random point near it)."""
    if s.hp["crafting"] == "eval":  # FGSM used other statistics: compute the gradient again
        g = gradient_at(s.model, s.x, s.y, "train")
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
    x_hat, g = zero_attack(s)
    return aligned(s, g, only_adversarial(s, x_hat))


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
    x_hat, g = zero_attack(s)
    return aligned(s, g, pulled(s, x_hat, one_off(s, x_hat)))
