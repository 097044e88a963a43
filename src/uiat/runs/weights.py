"""Reading weights files of this package and others, and the digest that identifies weights."""

import hashlib
import pickle
import warnings
from collections.abc import Collection, Container, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from uiat.errors import UserError
from uiat.models.wrappers import NetworkWrapper, Normalized

EXPORTED = "model.safetensors"
"""The name of the weights file in an export."""
WRAPPERS = ("state_dict", "model_state_dict", "net", "model")
"""Keys under which public checkpoints store the weights."""
DEPTH = 8
"""How many nested wrappers are unwrapped; a file may hold a dictionary that contains itself."""
PREFIXES = ("module.", "_orig_mod.")
"""Prefixes that DataParallel and torch.compile add to every name."""
UNUSED = ("sub_block1.",)
"""Weights that the wide networks of the TRADES code save but never use."""
DIGEST = "weights_digest"
"""The key of a measurement for the digest of the weights that were measured."""
NO_DIGEST = "has no digest of its weights: it was evaluated by an earlier version of uiat"
OTHER_WEIGHTS = "result(s) of weights that the run no longer has are skipped: evaluate it again"


def load_weights(model: nn.Module, path: Path, *, head: Collection[str] = (), fresh_head: bool = False) -> None:
    """Load a weights file into a model; names and shapes must match.

    `head` names the weights of the last layer; with `fresh_head`, the model keeps its own.
    """
    model.load_state_dict(fitting_weights(model, path, head=head, fresh_head=fresh_head))


def fitting_weights(
    model: nn.Module, path: Path, *, head: Collection[str] = (), fresh_head: bool = False
) -> dict[str, Tensor]:
    """Return the state dict of a weights file; names and shapes must be those of the model.

    The weights of a network that the model wraps (`uiat.Normalized`, `uiat.logits_of`) are accepted as well.
    """
    expected = model.state_dict()
    prefixes = model.inner_prefixes() if isinstance(model, NetworkWrapper) else ()
    inner = {name.removeprefix(prefix) for prefix in prefixes for name in expected if name.startswith(prefix)}
    tensors = read_weights(path, {*expected, *inner})
    if isinstance(model, NetworkWrapper):
        tensors = _wrapped(model.converted(tensors), expected, prefixes)
    _check_statistics(model, tensors, path)
    if fresh_head:
        tensors |= {name: expected[name] for name in head}
    for name, tensor in expected.items():
        if name not in tensors:
            if name.endswith("num_batches_tracked"):  # older checkpoints lack it, and nothing depends on it
                tensors[name] = tensor
                continue
            raise UserError(f"{path} has no weights {name!r} {tuple(tensor.shape)}: it is of another network.")
        if tensors[name].shape != tensor.shape:
            shape, wanted = tuple(tensors[name].shape), tuple(tensor.shape)
            if name in head and shape[1:] == wanted[1:]:
                raise UserError(
                    f"{path} has a last layer {name!r} for {shape[0]} classes, but the data has {wanted[0]}: "
                    "start this layer from random weights with --train.fresh-head."
                )
            raise UserError(f"{path}: {name!r} has shape {shape} instead of {wanted}: it is of another network.")
    extra = [name for name in tensors if name not in expected and not name.startswith(UNUSED)]
    if extra:
        raise UserError(
            f"{path} has weights {extra[0]!r} {tuple(tensors[extra[0]].shape)} that the network lacks: "
            "it is of another network."
        )
    return {name: tensors[name] for name in expected}


def _wrapped(tensors: dict[str, Tensor], expected: Mapping[str, Tensor], prefixes: Sequence[str]) -> dict[str, Tensor]:
    """Return weights of a wrapper, or of the network inside, under the wrapper's names, with a mean and std."""
    known = [sum(f"{prefix}{name}" in expected for name in tensors) for prefix in ("", *prefixes)]
    chosen = ("", *prefixes)[known.index(max(known))]
    inside = chosen or prefixes[0]
    own = {name: tensor for name, tensor in expected.items() if not name.startswith(inside)}
    return {**own, **{f"{chosen}{name}": tensor for name, tensor in tensors.items()}}


def _check_statistics(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise a `UserError` if a file has another mean or std than `uiat.Normalized`, or has them and the model has not.

    The mean and std of an average over steps are rounded.
    """
    saved = {part: tensors[name] for part in ("mean", "std") if (name := f"normalize.{part}") in tensors}
    given = " ".join(f"--{part} {_numbers(value)}" for part, value in saved.items())
    if isinstance(model, Normalized):
        known = {"mean": model.normalize.mean, "std": model.normalize.std}
        for part, value in saved.items():
            own = known[part].cpu()
            if value.shape != own.shape or not value.float().allclose(own, rtol=1e-4):
                raise UserError(
                    f"{path} was saved with a {part} of {_numbers(value)}, but the network normalises with "
                    f"{_numbers(own)}: give {given}."
                )
    elif given and all(f"model.{name}" in tensors for name in model.state_dict()):
        raise UserError(f"{path} is of a network in uiat.Normalized: give {given}.")


def _numbers(values: Tensor) -> str:
    return " ".join(f"{value:.4g}" for value in values.flatten().tolist())


def read_weights(path: Path, expected: Container[str] = ()) -> dict[str, Tensor]:
    """Return the weights in a `.safetensors` or `.pt` file, on the CPU, without prefixes; no code in it is run.

    Names in `expected` are kept: a network may have a submodule that is called `module`.
    """
    if not path.is_file():
        raise UserError(f"there are no weights at {path}: train first, or give the path of a weights file.")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickle(path)
    tensors = {_plain(name, expected): value for name, value in _unwrap(state).items() if isinstance(value, Tensor)}
    if not tensors:
        raise UserError(f"{path} holds no weights: give a state dict, plain or under {', '.join(WRAPPERS)}.")
    return tensors


def weights_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the names, types, shapes and values of all tensors, sorted by name.

    It does not depend on the file format. BatchNorm's `num_batches_tracked` is skipped: old files lack it.
    """
    digest = hashlib.sha256()
    for name in sorted(name for name in tensors if not name.endswith("num_batches_tracked")):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Return the digest of the weights in a file; cached until the file changes."""
    facts = path.stat()
    return _file_digest(path, facts.st_ino, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=1024)
def _file_digest(path: Path, *_: int) -> str:
    return weights_digest(read_weights(path))


def is_measured_on(entry: Mapping[str, Any], file: Path) -> bool:
    """Whether an entry was measured on the weights in a file; `True` if there is nothing to compare.

    Earlier versions wrote entries without a digest, and published results have no weights.
    """
    if DIGEST not in entry or not file.is_file():
        return True
    try:
        return bool(entry[DIGEST] == file_digest(file))
    except (OSError, UserError):  # nothing was measured on a damaged file
        return False


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        raise UserError(f"{path} is not a readable safetensors file: it is damaged or has another format.") from None


def _read_pickle(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols and other file formats
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make the reader fail in any way, down to `struct.error`
        if isinstance(error, pickle.UnpicklingError) and "global" in str(error).lower():
            raise UserError(
                f"{path} holds objects or code beside weights, which are never loaded: save only the state_dict()."
            ) from None
        raise UserError(f"{path} is not a readable weights file: it is damaged or has another format.") from None


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
