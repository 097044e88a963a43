"""Check of a network before a run: a forward and backward on two samples, without side effects."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from uiat.errors import UserError, first_line
from uiat.evaluation.subject import network_name, try_forward
from uiat.models import ModelConfig
from uiat.models.probe import trial_batch, untouched
from uiat.types import DataSpec


def try_network(model: nn.Module, config: ModelConfig, data: DataSpec) -> None:
    """Raise a `UserError` that names why a network cannot be trained on this data, if it cannot.

    It is run in training and in evaluation mode, on two samples of noise of the shape of the data, on its device. Its
    weights, statistics and modes, and the global random streams, are restored afterwards.
    """
    name = network_name(config)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise UserError(f"{name} has no parameter to train: set requires_grad on those that training should change.")
    x = trial_batch(data, trained[0].device)
    with untouched(model), torch.enable_grad():
        for training in (False, True):
            model.train(training)
            _try(model, x.clone().requires_grad_(), data, name)


def _try(model: nn.Module, x: Tensor, data: DataSpec, name: str) -> None:
    logits = try_forward(model, x, data, name)
    if not bool(logits.isfinite().all()):
        raise UserError(f"{name} returns NaN or infinite logits before any training: check its forward and weights.")
    mode = "training" if model.training else "evaluation"
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = F.cross_entropy(logits.float(), torch.zeros(len(x), dtype=torch.long, device=logits.device))
    try:
        at_x, *others = torch.autograd.grad(loss, [x, *trained], allow_unused=True)
    except RuntimeError as error:
        raise UserError(
            f"the gradient of {name} fails in {mode} mode ({first_line(error)}): make its forward differentiable."
        ) from error
    for gradients, what in (([at_x], "its input, which an attack needs"), (others, "any of its parameters")):
        if all(gradient is None for gradient in gradients):
            raise UserError(f"the output of {name} has no gradient for {what}: do not detach it in the forward.")
