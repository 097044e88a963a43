"""Loading weights into a network, with an error a person can act on."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from uiat.errors import UserError


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a safetensors file into the model, strictly."""
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise UserError(f"there are no weights at {path}: train first, or give the path of a weights file.") from None
    except (OSError, SafetensorError):
        raise UserError(f"{path} is not a readable safetensors file: it is damaged or of another kind.") from None
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name not in tensors:
            raise UserError(f"{path} has no weights {name!r}: it belongs to another network.")
        if tensors[name].shape != tensor.shape:
            found, want = tuple(tensors[name].shape), tuple(tensor.shape)
            raise UserError(f"{path}: {name!r} has shape {found}, the network wants {want}: it belongs to another one.")
    extra = sorted(tensors.keys() - expected.keys())
    if extra:
        raise UserError(f"{path} has weights {extra[0]!r} that the network lacks: it belongs to another one.")
    model.load_state_dict(tensors)
