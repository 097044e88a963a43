"""What a network must return: a tensor with a row for each sample and a column for each class."""

from torch import Tensor

from uiat.errors import UserError


def check_logits(found: object, samples: int, classes: int, network: str = "the model") -> Tensor:
    """Return the output of a network if it is logits; else raise a `UserError` that names the mistake."""
    if not isinstance(found, Tensor):
        held = f" of {len(found)}" if isinstance(found, tuple | list | dict) else ""
        wrong = f"a {type(found).__name__}{held}, not a tensor"
        advice = "return the logits alone" + (" (its .logits)" if hasattr(found, "logits") else "")
    elif found.shape == (samples, classes):
        return found
    else:
        wrong = f"a tensor of shape {tuple(found.shape)} for {samples} samples of {classes} classes"
        advice = f"return one row a sample and one logit a class, ({samples}, {classes})"
        if found.ndim == 2 and len(found) == samples:
            wrong = f"{found.shape[1]} logits a sample, but the data has {classes} classes"
            advice = f"give its last layer {classes} outputs"
    raise UserError(f"{network} returns {wrong}: {advice}.")
