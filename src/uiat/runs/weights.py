"""Reading weights, ours or anyone's, and loading them with an error a person can act on."""

import pickle
import warnings
from collections.abc import Collection, Container, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from uiat.errors import UserError

EXPORTED = "model.safetensors"
"""The weights in the folder of an export."""
WRAPPERS = ("state_dict", "model_state_dict", "net", "model")
"""Under which key public checkpoints keep the weights."""
DEPTH = 8
"""How many wrappers within each other are opened; a file may hold a dictionary that holds itself."""
PREFIXES = ("module.", "_orig_mod.")
"""What DataParallel and torch.compile put before every name."""
UNUSED = ("sub_block1.",)
"""Weights that the TRADES code's wide networks save and never use."""


def load_weights(model: nn.Module, path: Path, *, head: Collection[str] = (), fresh_head: bool = False) -> None:
    """Load a weights file into the model; every weight must be there and fit.

    `head` names the weights of the last layer: with `fresh_head` they stay the model's own.
    """
    model.load_state_dict(fitting_weights(model, path, head=head, fresh_head=fresh_head))


def fitting_weights(
    model: nn.Module, path: Path, *, head: Collection[str] = (), fresh_head: bool = False
) -> dict[str, Tensor]:
    """Return the state dict for a model that a weights file holds; every weight must be there and fit."""
    expected = model.state_dict()
    tensors = read_weights(path, expected)
    if fresh_head:
        tensors |= {name: expected[name] for name in head}
    for name, tensor in expected.items():
        if name not in tensors:
            if name.endswith("num_batches_tracked"):  # older checkpoints lack it, and nothing depends on it
                tensors[name] = tensor
                continue
            raise UserError(f"{path} has no weights {name!r} {tuple(tensor.shape)}: it belongs to another network.")
        if tensors[name].shape != tensor.shape:
            shape, wanted = tuple(tensors[name].shape), tuple(tensor.shape)
            if name in head and shape[1:] == wanted[1:]:
                raise UserError(
                    f"{path} has a last layer {name!r} for {shape[0]} classes, but the data has {wanted[0]}: "
                    "replace this layer with --train.fresh-head."
                )
            raise UserError(
                f"{path}: {name!r} has shape {shape}, the network wants {wanted}: it belongs to another one."
            )
    extra = [name for name in tensors if name not in expected and not name.startswith(UNUSED)]
    if extra:
        raise UserError(
            f"{path} has weights {extra[0]!r} {tuple(tensors[extra[0]].shape)} that the network lacks: "
            "it belongs to another one."
        )
    return {name: tensors[name] for name in expected}


def read_weights(path: Path, expected: Container[str] = ()) -> dict[str, Tensor]:
    """Return the weights in a `.safetensors` or `.pt` file, on the CPU, under plain names; no code in it is run.

    A name that is expected is plain already: a network may have a part of its own that is called `module`.
    """
    if not path.is_file():
        raise UserError(f"there are no weights at {path}: train first, or give the path of a weights file.")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    tensors = {_plain(name, expected): value for name, value in _unwrap(state).items() if isinstance(value, Tensor)}
    if not tensors:
        raise UserError(f"{path} holds no weights: give a state dict, plain or under {', '.join(WRAPPERS)}.")
    return tensors


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        raise UserError(f"{path} is not a readable safetensors file: it is damaged or of another kind.") from None


def _read_pickle(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols, and files of other kinds
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the reader fail in any way, down to `struct.error`
        if isinstance(error, pickle.UnpicklingError) and "global" in str(error).lower():
            raise UserError(
                f"{path} holds objects or code beside weights, which are never loaded: save its state_dict() alone."
            ) from None
        raise UserError(f"{path} is not a readable weights file: it is damaged or of another kind.") from None


def _unwrap(state: Any) -> Mapping[str, Any]:
    for _ in range(DEPTH):
        if not isinstance(state, Mapping):
            break
        inner = next((state[key] for key in WRAPPERS if isinstance(state.get(key), Mapping)), None)
        if inner is None:
            return {str(name): value for name, value in state.items()}
        state = inner
    return {}


def _plain(name: str, expected: Container[str]) -> str:
    while name not in expected and name.startswith(PREFIXES):
        name = name.split(".", 1)[1]
    return name
