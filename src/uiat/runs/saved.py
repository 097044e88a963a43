"""A trained network in a folder, a run's or an export's, or on the Hub: opened without running anything that is there.

An export may come from a stranger. Its network is built by the classes of `MODELS` from what its config.json says, and
the shapes of its weights are compared before memory is taken for them.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from uiat import data, models
from uiat.attacks import PGD
from uiat.config import AnyConfig, model_from_json
from uiat.data.files import first_line, nearest, user_path
from uiat.errors import UserError
from uiat.models import LARGEST, Imported, ModelConfig, NetworkOptions
from uiat.plugins import unnamed
from uiat.runs import hub
from uiat.runs.identity import choose_data, find_data, known_facts
from uiat.runs.result_card import EXPORT, data_facts
from uiat.runs.run_folder import RunFolder, Weights, read_json
from uiat.runs.weights import EXPORTED, fitting_weights
from uiat.types import DataSpec

CONFIG, CARD = "config.json", "card.json"
"""What describes the network of an export: what the Hub wants, else the card."""
UNFINISHED = ".unfinished-export"
"""Is in the folder of an export until all its files are."""
MOST_BYTES = 10_000_000
"""The largest description that is read."""


def load(
    source: str | Path,
    *,
    revision: str | None = None,
    weights: Weights = "best",
    model: str = "",
    device: str | torch.device = "cpu",
) -> nn.Module:
    """Return a trained network in eval mode: inputs in [0, 1], normalised inside, to logits.

    Nothing in the folder is run, and weights are read as safetensors only.

    >>> import torch, uiat
    >>> network = uiat.load("runs/b")
    >>> network(torch.rand(2, 1, 8, 8)).shape
    torch.Size([2, 10])

    Args:
        source: the folder of a run or of an export, or the name `owner/name` of one on the Hub (which needs
            huggingface_hub). A path that exists wins over a name.
        revision: a branch, tag or commit on the Hub; `None` is its newest.
        weights: of a run, "best" or "last"; averaged where the run averages, unless "-raw".
        model: a custom network, as `module:callable`: no code is imported that only the folder names.
        device: where the network is put.
    """
    path = locate(source, revision)
    if not path.is_dir():
        advice = nearest(path) or "give the folder of a run or of an export, or owner/name for one on the Hub."
        raise UserError(f"there is no folder {path}: {advice}")
    if (export := read_export(path)) is not None:
        described, spec, file = export.model, export.spec, export.weights_file(weights)
    else:
        run = RunFolder.open(path)
        config = run.read_config()
        described, file, (_, spec) = config.model, run.find_weights(weights), trained_on(run, config)
    with torch.random.fork_rng([]):  # whoever loads a network in the middle of an experiment draws as before
        return build(choose_model(described, model, path), spec, file).to(device)


def locate(source: str | Path, revision: str | None = None) -> Path:
    """Return the path that is given; for `owner/name`, where there is no such path, the download of an export.

    Where there is a folder called `owner`, a path is meant.
    """
    path = user_path(str(source))
    name = str(source)
    if os.path.exists(path) or not hub.is_name(name) or os.path.isdir(name.partition("/")[0]):
        if revision is not None:
            raise UserError(f"a revision is for a network on the Hub, but {path} is a path: leave it out.")
        return path
    folder = hub.download(name, (CONFIG, EXPORTED), revision)
    if read_export(folder) is None:
        raise UserError(f"{name} on the Hub is no network of uiat (`uiat push` writes one): give another name.")
    return folder


@dataclass(frozen=True)
class Exported:
    """What an export says of its network."""

    path: Path
    model: ModelConfig
    spec: DataSpec
    data: dict[str, Any]
    """Name of the data, classes, shape of an image, and how many test images were taken; `None`: all."""
    base: PGD
    """The threat model it was trained for."""

    def weights_file(self, which: Weights = "best") -> Path:
        """Return the file of the weights; an export has one set of them."""
        if which != "best":
            raise UserError(f"{self.path} is an export, with one set of weights: leave out the choice {which!r}.")
        return self.path / EXPORTED


def read_export(path: Path) -> Exported | None:
    """Return what the export in a folder says of its network; `None` where the folder is of another kind."""
    if (path / UNFINISHED).is_file():
        raise UserError(f"the export in {path} is not complete, or still being written: export it again.")
    for file in (path / CONFIG, path / CARD):
        if not file.is_file():
            continue
        if file.stat().st_size > MOST_BYTES:
            raise UserError(f"{file} has more than {MOST_BYTES:,} bytes: it does not describe a network.")
        saved = read_json(file)
        if isinstance(saved, dict) and saved.get("kind") == EXPORT:
            try:
                return _decode(path, saved)
            except UserError as error:
                raise UserError(f"cannot read {file}: {error}") from None
            except Exception as error:  # a stranger's file may hold anything
                raise UserError(f"{file} does not describe a network ({first_line(error)}).") from None
    return None


def _decode(path: Path, saved: dict[str, Any]) -> Exported:
    network = {k: v for k, v in saved["network"].items() if k not in ("parameters", "input", "output")}
    facts, threat = saved["data"], saved["threat_model"]
    subset = facts.get("options", {}).get("test_subset")
    if not isinstance(subset, int | None):
        raise UserError("data.options.test_subset is not a number.")
    name, classes, shape = str(facts["name"]), list(map(str, facts["classes"])), list(map(int, facts["shape"]))
    if len(shape) != 3 or not classes or not all(0 < side <= LARGEST for side in shape):
        raise UserError(f"there is no network from images of shape {str(shape)[:100]} to {len(classes)} classes.")
    model = model_from_json(network)
    if threat["norm"] not in ("linf", "l2"):
        raise UserError(f"the norm {str(threat['norm'])[:100]!r} is neither linf nor l2.")
    base = PGD(eps=float(threat["eps"]), step=None, steps=20, norm=threat["norm"])
    spec = DataSpec(len(classes), int(facts.get("train", 1)), tuple(shape))
    if isinstance(model, NetworkOptions):
        model.check(spec)
    known = {"name": name, "classes": classes, "shape": shape, "test_subset": subset}
    return Exported(path, model, spec, known, base)


def choose_model(described: ModelConfig, given: str, place: Path, flag: str = "--model") -> ModelConfig:
    """Return the network that a person gives as a name, else that of a folder, unless it is code to import."""
    target = described.target if isinstance(described, Imported) else ""
    if given and given != target:
        return models.get_model(given)
    if given != target:
        shown = target[:100]
        raise unnamed(f"the network of {place} is {shown!r}", (flag, shown), f"model={shown!r}")
    return described


def check_model(described: ModelConfig, given: str, place: Path) -> None:
    """Refuse a network that is code to import, unless a person names it; and a name that is of another network."""
    if choose_model(described, given, place) != described:
        raise UserError(f"{given} is not the network of {place}: omit --model, or give the folder of another run.")


def trained_on(run: RunFolder, config: AnyConfig, data_dir: str | None = None) -> tuple[dict[str, Any], DataSpec]:
    """Return what a run's card says of its data, or its data.json; the data of a run with neither is read again."""
    facts = run.read_card().get("data") or known_facts(run, config)
    if not facts:
        choose_data(config.data.name, None, run.path)
        facts = data_facts(config, data.load(find_data(run, config.data), data_dir))
    try:
        return facts, DataSpec(len(facts["classes"]), int(facts["train"]), tuple(facts["shape"]))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{run.result} does not say what the data was: remove it, and try again.") from None


def build(model: ModelConfig, spec: DataSpec, file: Path) -> nn.Module:
    """Return the network with the weights of a file, in eval mode.

    A bundled network is first built without memory, and compared with the file: a wrong size costs no memory.
    """
    if isinstance(model, NetworkOptions):
        try:
            with torch.random.fork_rng([]), torch.device("meta"):
                empty = model.build(spec)
        except UserError:
            raise
        except Exception as error:  # torch fails in many ways on impossible sizes
            raise UserError(f"{file.parent} describes a network that cannot be built ({first_line(error)}).") from error
        tensors = fitting_weights(empty, file)
        network = model.build(spec)
    else:
        network = model.build(spec)
        tensors = fitting_weights(network, file)
    # `fitting_weights` has compared all tensors; one without memory is a counter that old files lack.
    network.load_state_dict({name: tensor for name, tensor in tensors.items() if not tensor.is_meta}, strict=False)
    return network.eval()
