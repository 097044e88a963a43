"""Checkpoints as other people save them, sound and unsound."""

import io
import os
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

State = dict[str, Tensor]
WRAPPED: dict[str, Callable[[State], Any]] = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 3, "best_acc": 0.5},
    "model_state_dict": lambda state: {"model_state_dict": state, "unaveraged_model_state_dict": {}},
    "net": lambda state: {"net": state, "acc": 93.0},
    "model": lambda state: {"model": state, "optimizer": {"state": {}, "param_groups": []}},
    "twice": lambda state: {"model": {"state_dict": state}},
}
RENAMED: dict[str, Callable[[str], str]] = {
    "as it is": lambda name: name,
    "DataParallel": lambda name: f"module.{name}",
    "compiled": lambda name: f"_orig_mod.{name}",
    "compiled DataParallel": lambda name: f"_orig_mod.module.{name}",
    "DataParallel, compiled": lambda name: f"module._orig_mod.{name}",
}


def save_as_on_gpu(state: State, path: Path) -> None:
    """Save a state dict whose storages say that they were on cuda:0, as a GPU's owner does."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with zipfile.ZipFile(buffer) as sound, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as moved:
        for entry in sound.infolist():
            content = sound.read(entry)
            moved.writestr(entry.filename, _move(content) if entry.filename.endswith("data.pkl") else content)
    assert b"cuda:0" in path.read_bytes()


def _move(pickled: bytes) -> bytes:
    """Replace the string 'cpu' by 'cuda:0' where the pickle has it: an opcode, the length in four bytes, the text."""
    places = [at for opcode, value, at in pickletools.genops(pickled) if value == "cpu" and opcode.name == "BINUNICODE"]
    assert places
    old, new = b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"
    for at in reversed(places):
        assert at is not None
        assert pickled[at : at + len(old)] == old
        pickled = pickled[:at] + new + pickled[at + len(old) :]
    return pickled


class Command:
    """Pickles to a call of `os.system`."""

    def __init__(self, line: str) -> None:
        self.line = line

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.line,)


class Own(nn.Module):
    """A network with a part of its own that is called `module`."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 3)
        self.last = nn.Linear(3, 2)
