"""Writing the folder of an export, without touching other files in it."""

import json
import runpy
import tempfile
import warnings
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from uiat.errors import UserError
from uiat.export.loaded_run import LoadedRun
from uiat.export.model_card import DESCRIBED, HubCard, write_card, write_readme
from uiat.export.script import EXAMPLE, NETWORK, SCRIPT, requirements, write_example, write_scripts
from uiat.io import atomic, write_json, write_tensors, write_text
from uiat.runs.hub import require_package
from uiat.runs.result_card import EXPORT, preprocessing
from uiat.runs.saved import CARD, CONFIG, UNFINISHED
from uiat.runs.weights import EXPORTED
from uiat.types import DataSpec

ONNX, README = "model.onnx", "README.md"
FILES = (EXPORTED, SCRIPT, NETWORK, EXAMPLE, ONNX, CARD, CONFIG, README)


def write_folder(loaded: LoadedRun, out: Path, *, onnx: bool = False, hub: HubCard | None = None) -> list[str]:
    """Write an export and return the names of its files; files of other names in the folder are kept.

    With `hub`, it is a model for the Hub: it also has `config.json`, and `README.md` is a model card.
    """
    if onnx and find_spec("onnx") is None:
        raise UserError("--onnx needs the package onnx: pip install onnx.")
    if hub is not None:
        require_package("a model card")
    texts = write_scripts(loaded.config.model, loaded.spec)
    if NETWORK not in texts:
        _verify(texts[SCRIPT], loaded)
    prepare_folder(out)
    try:
        return _write_files(loaded, out, texts, onnx, hub)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write the folder {out} ({error}): choose another --out.") from None


def _verify(script: str, loaded: LoadedRun) -> None:
    """Run `model.py` as a user would; raise an error unless its logits equal those of the run bit by bit."""
    x = torch.rand((2, *loaded.spec.shape), generator=torch.Generator().manual_seed(0))
    try:
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng([]), torch.no_grad():
            path = Path(folder) / SCRIPT
            path.write_text(script, encoding="utf-8")
            model: nn.Module = runpy.run_path(str(path), run_name="uiat_exported_model")["load"](loaded.file)
            logits, expected = model(x), loaded.model(x)
            # NaN logits are equal, too: weights that are not finite are reported with the accuracies
            same = logits.shape == expected.shape and torch.allclose(logits, expected, 0, 0, equal_nan=True)
    except Exception as error:  # a custom network may raise anything
        kind = type(loaded.config.model)
        raise UserError(
            f"the source of {kind.__module__}.{kind.__name__} does not work as one file "
            f"({type(error).__name__}: {error}): define it in one module that imports only torch."
        ) from error
    if not same:
        raise UserError(f"{SCRIPT} returns other logits than the run: its network depends on more than its options.")


def prepare_folder(out: Path) -> None:
    """Create the folder; raise an error if files that are not of an earlier export would be overwritten."""
    if out.is_file():
        raise UserError(f"cannot write the folder {out}: a file has that name; choose another --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        ours = _exported_files(out)
        present = [name for name in FILES if name not in ours and (out / name).exists()]
    except OSError as error:
        raise UserError(f"cannot write the folder {out}: {error.strerror}; choose another --out.") from None
    if present:
        raise UserError(f"{out} has {present[0]}, which is not of an export: choose another --out, or move it away.")


def _exported_files(out: Path) -> Collection[str]:
    """Return the names that files of an earlier export in a folder have."""
    if (out / UNFINISHED).is_file():
        return FILES
    try:
        card: Any = json.loads((out / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return FILES if isinstance(card, dict) and card.get("kind") == EXPORT else ()


def _write_files(loaded: LoadedRun, out: Path, texts: dict[str, str], onnx: bool, hub: HubCard | None) -> list[str]:
    write_text(
        out / UNFINISHED, "An export is being written, or was interrupted; `uiat export` writes all of it again.\n"
    )
    write_tensors(out / EXPORTED, loaded.model.state_dict(), {"format": "pt"})
    requires = requirements(texts.values())
    texts = {**texts, EXAMPLE: write_example()}
    for name, text in texts.items():
        write_text(out / name, text)
    if onnx:
        write_onnx(loaded.model, loaded.spec, loaded.data["classes"], out / ONNX)
    files = [EXPORTED, *texts, *([ONNX] if onnx else []), CARD, *([CONFIG] if hub else []), README]
    card = write_card(loaded, out, files, requires)
    if hub is not None:
        write_json(out / CONFIG, {part: card[part] for part in DESCRIBED})
    write_text(out / README, write_readme(card, hub))
    write_json(out / CARD, card)
    for name in set(FILES) - set(files):  # of an earlier export
        (out / name).unlink(missing_ok=True)
    (out / UNFINISHED).unlink()
    return files


def write_onnx(model: nn.Module, data: DataSpec, classes: list[str], path: Path) -> None:
    """Write the network as ONNX, with input `x` (N, …) in [0, 1] and output `logits` (N, classes), for any N.

    The metadata of the file has the preprocessing and the names of the classes, each as JSON.
    """
    x = torch.rand((2, *data.shape), generator=torch.Generator().manual_seed(0))
    names: dict[str, Any] = {"input_names": ["x"], "output_names": ["logits"]}
    axes = {"x": {0: "batch"}, "logits": {0: "batch"}}
    with atomic(path) as temporary, warnings.catch_warnings():
        # The TorchScript exporter is deprecated, but needs only onnx; the new one also needs onnxscript.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(model, (x,), str(temporary), **names, dynamic_axes=axes, dynamo=False)
            _add_metadata(temporary, {**preprocessing(data.shape), "classes": classes})
        except Exception as error:  # operations that ONNX lacks raise many types of errors
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(f"the network cannot be written as ONNX ({reason}): export without --onnx.") from error


def _add_metadata(path: Path, facts: dict[str, Any]) -> None:
    import onnx  # optional

    network = onnx.load(path)
    onnx.helper.set_model_props(network, {key: json.dumps(value) for key, value in facts.items()})
    onnx.save(network, path)
