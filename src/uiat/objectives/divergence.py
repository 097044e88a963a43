"""Divergence and margin on logits and log-probabilities, shared by attacks and loss terms."""

import torch
import torch.nn.functional as F
from torch import Tensor


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p ‖ q) for each sample, from log-probabilities on both sides.

    Never forms log(0): values and gradients stay finite as p → 0.
    """
    return F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=1)


def best_other(scores: Tensor, y: Tensor) -> Tensor:
    """Return the largest score among the wrong classes of each sample."""
    is_label = F.one_hot(y, scores.shape[1]).bool()
    return scores.masked_fill(is_label, -torch.inf).amax(dim=1)


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """Return max_{k≠y} z_k − z_y for each sample: positive means misclassified (the CW attack's objective)."""
    return best_other(logits, y) - logits.gather(1, y[:, None]).squeeze(1)
