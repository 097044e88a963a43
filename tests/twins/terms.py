"""The losses that several twins end with."""

from torch import Tensor

from .basics import Result, Step, cross_entropy, kl_probabilities, logits, mean


def only_adversarial(s: Step, x_hat: Tensor) -> Result:
    """CE(f(x_hat), y)."""
    ce = mean(cross_entropy(logits(s.model, x_hat), s.y, s.hp.get("smoothing", 0.0)))
    return Result(ce, {"ce": ce})


def pulled(s: Step, x_hat: Tensor, p: Tensor) -> Result:
    """Eq. 7: CE(f(x_hat), y) + lambda * KL(p || f(x_hat))."""
    out = logits(s.model, x_hat)
    ce = mean(cross_entropy(out, s.y, s.hp.get("smoothing", 0.0)))
    kl = mean(kl_probabilities(p, out))
    return Result(ce + s.hp["lam"] * kl, {"ce": ce, "kl": kl})
