"""The folder of an export: written file by file, checked, and careful with what was there before."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from uiat.errors import UserError
from uiat.export.card import KIND, write_card
from uiat.export.onnx import ONNX, check_onnx, write_onnx
from uiat.export.own import NETWORK, own_script, own_source, requirements
from uiat.export.readme import write_readme
from uiat.export.script import write_script
from uiat.export.subject import Subject
from uiat.io import atomic, write_json, write_tensors
from uiat.models import Imported
from uiat.runs.weights import EXPORTED

SCRIPT, CARD, README = "model.py", "card.json", "README.md"
OURS = (EXPORTED, SCRIPT, NETWORK, ONNX, CARD, README)


def write_folder(subject: Subject, out: Path, *, onnx: bool = False) -> list[str]:
    """Write the export and return the names of its files; files of other names in the folder are left alone."""
    if onnx:
        check_onnx()
    texts = _scripts(subject)
    prepare(out)
    try:
        return _fill(subject, out, texts, onnx)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write the folder {out} ({error}): choose another --out.") from None


def _fill(subject: Subject, out: Path, texts: dict[str, str], onnx: bool) -> list[str]:
    write_tensors(out / EXPORTED, subject.model.state_dict(), {"format": "pt"})
    for name, text in texts.items():
        _write(out / name, text)
    if NETWORK not in texts:
        _verify(out / SCRIPT, subject)
    if onnx:
        write_onnx(subject.model, subject.spec, out / ONNX)
    files = [EXPORTED, *texts, *([ONNX] if onnx else []), CARD, README]
    requires = requirements(texts.get(NETWORK, ""))
    _write(out / README, write_readme(subject, files, requires))
    write_json(out / CARD, write_card(subject, out, files, requires))
    for stale in set(OURS) - set(files):  # of an earlier export: they would not belong to these weights
        (out / stale).unlink(missing_ok=True)
    return files


def prepare(out: Path) -> None:
    """Make the folder, or see that nothing in it is lost but an earlier export."""
    if out.is_file():
        raise UserError(f"cannot write the folder {out}: there is a file of that name; choose another --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = [name for name in OURS if (out / name).exists()]
    except OSError as error:
        raise UserError(f"cannot write the folder {out}: {error.strerror}; choose another --out.") from None
    if there and not _is_export(out / CARD):
        raise UserError(f"{out} holds a {there[0]} that is not of an export: choose another --out, or move it away.")


def _is_export(card: Path) -> bool:
    try:
        found: Any = json.loads(card.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("kind") == KIND


def _scripts(subject: Subject) -> dict[str, str]:
    config = subject.config.model
    if isinstance(config, Imported):
        return {SCRIPT: own_script(config, subject.spec), NETWORK: own_source(config)}
    return {SCRIPT: write_script(config, subject.spec)}


def _write(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _verify(script: Path, subject: Subject) -> None:
    """Load the export as its reader will, and see that it gives the run's logits bit by bit."""
    x = torch.rand((2, *subject.spec.shape), generator=torch.Generator().manual_seed(0))
    space: dict[str, Any] = {"__name__": "uiat_exported_model", "__file__": str(script)}
    try:
        with torch.random.fork_rng([]), torch.no_grad():
            exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), space)
            model: nn.Module = space["load"]()
            same = torch.equal(model(x), subject.model(x))
    except Exception as error:  # a network of one's own, registered in MODELS, may be written in any way
        kind = type(subject.config.model)
        raise UserError(
            f"the source of {kind.__module__}.{kind.__name__} does not work as one file "
            f"({type(error).__name__}: {error}): keep it in one module, beside imports of torch."
        ) from error
    if not same:
        raise UserError(f"{script} gives other logits than the run: its network depends on more than its options.")
