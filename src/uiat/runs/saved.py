"""Loading trained networks from a run, an export or the Hub, and images of a run, without running any code in them.

An export may be untrusted. Its network is built by the classes of `MODELS` from its config.json, and the shapes of the
weights are compared before memory is allocated for them.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from uiat import models
from uiat.attacks import PGD
from uiat.config import AnyConfig
from uiat.config_json import model_from_json
from uiat.data import Splits, load_splits
from uiat.data.data_config import DataConfig
from uiat.errors import UserError, first_line
from uiat.models import LARGEST, Imported, InMemory, ModelConfig, NetworkOptions
from uiat.models.wrappers import with_statistics
from uiat.paths import suggest_path, user_path
from uiat.plugins import unnamed
from uiat.runs import hub
from uiat.runs.identity import check_same, choose_data, find_data, identity, known_facts
from uiat.runs.published import open_published
from uiat.runs.result_card import EXPORT, data_facts
from uiat.runs.run_folder import RunFolder, Weights, read_json
from uiat.runs.weights import EXPORTED, fitting_weights
from uiat.types import DataSpec

CONFIG, CARD = "config.json", "card.json"
"""The files that describe an exported network: config.json if exported for the Hub, else the card."""
UNFINISHED = ".unfinished-export"
"""A file that exists in an export until all others do."""
MAX_DESCRIPTION_BYTES = 10_000_000
"""The largest description that is read."""


def load(
    source: str | Path,
    *,
    revision: str | None = None,
    weights: Weights = "best",
    model: str = "",
    device: str | torch.device = "cpu",
) -> nn.Module:
    """Load a trained network in eval mode, which maps inputs in [0, 1] to logits; normalisation is inside.

    No code in the folder is run, and weights are read from safetensors files only.

    >>> import torch, uiat
    >>> network = uiat.load("runs/b")
    >>> network(torch.rand(2, 1, 8, 8)).shape
    torch.Size([2, 10])

    Args:
        source: the folder of a run or of an export, the file NAME.json of a published run, or a model on the Hub as
            `owner/name` (which needs huggingface_hub). An existing path takes precedence.
        revision: a branch, tag or commit on the Hub; `None` for the newest.
        weights: of a run: "best" or "last", which are averaged if the run averages, or "best-raw" or "last-raw".
        model: a custom network, as `module:callable`; code that only the folder names is not imported.
        device: the device of the network.
    """
    path = locate(source, revision)
    if not path.is_dir():
        advice = suggest_path(path) or "give the folder of a run or of an export, or owner/name for one on the Hub."
        raise UserError(f"there is no folder {path}: {advice}")
    if (export := read_export(path)) is not None:
        described, spec, file = export.model, export.spec, export.weights_file(weights)
    else:
        run = RunFolder.open(path)
        config = run.read_config()
        described, file, (_, spec) = config.model, run.find_weights(weights), trained_on(run, config)
    with torch.random.fork_rng([]):  # building the network must not change the caller's random numbers
        return build(choose_model(described, model, path), spec, file).to(device)


def images(source: str | Path, *, data: str = "", data_dir: str | None = None) -> Splits:
    """Return the training, validation and test images of a data set, or those that a run was trained and tested on.

    >>> import uiat
    >>> found = uiat.images("digits")
    >>> found.test.x.shape, found.test.x.dtype, found.test.y[:4].tolist()
    (torch.Size([359, 1, 8, 8]), torch.uint8, [2, 1, 4, 6])
    >>> len(found.train), len(found.validation), found.test.classes[:3]
    (1295, 143, ('0', '1', '2'))
    >>> of_run = uiat.images("runs/b")  # with the subsets, size and splits of the run
    >>> result = uiat.evaluate(uiat.load("runs/b"), of_run.test.x, of_run.test.y)

    Args:
        source: a run folder, or the file NAME.json of a published run; else a data set as for `uiat train --data`: a
            built-in name, or the path of a folder of images or of an .npz.
        data: of a run on custom data: its new path if it was moved, or its `module:callable`, which is imported only if
            it is named here.
        data_dir: the folder of data sets and downloads; by default $UIAT_DATA, or a cache folder.

    Returns:
        `train`, `validation` and `test`, each with `x` (bytes, (N, C, H, W)), `y` (int64) and `classes` (names). Divide
        x by 255 for a network; `uiat.evaluate` takes it unchanged. Sample indices count within `train`.

    Raises:
        UserError: if the training or validation images have changed since the run was created.
    """
    run = RunFolder(open_published(user_path(str(source))))
    if not run.config.is_file():
        return load_splits(DataConfig(name=data or str(source)), data_dir)
    config = run.read_config().data
    config = replace(config, name=choose_data(config.name, data or None, run.path))
    splits = load_splits(find_data(run, config), data_dir)
    check_same(run.path, {**run.read_data(), "generated": None}, identity(splits), config.name)
    return splits


def locate(source: str | Path, revision: str | None = None) -> Path:
    """Return a local path: the given one, of a published run a folder to read it from, of a model its download.

    An existing path, or one in an existing folder `owner`, takes precedence over a name.
    """
    path = open_published(user_path(str(source)))
    name = str(source)
    if os.path.exists(path) or not hub.is_name(name) or os.path.isdir(name.partition("/")[0]):
        if revision is not None:
            raise UserError(f"a revision is for a network on the Hub, but {path} is a local path: omit it.")
        return path
    folder = hub.download(name, (CONFIG, EXPORTED), revision)
    if read_export(folder) is None:
        raise UserError(f"{name} on the Hub was not written by `uiat push`: give another name.")
    return folder


@dataclass(frozen=True)
class Exported:
    """The description of an exported network."""

    path: Path
    model: ModelConfig
    spec: DataSpec
    data: dict[str, Any]
    """Name of the data, classes, shape of an image, and size of the test subset (`None`: all test images)."""
    base: PGD
    """The threat model it was trained for."""

    def weights_file(self, which: Weights = "best") -> Path:
        """Return the path of the weights; an export has only one file."""
        if which != "best":
            raise UserError(f"{self.path} is an export, which has one set of weights: omit the choice {which!r}.")
        return self.path / EXPORTED


def read_export(path: Path) -> Exported | None:
    """Return the description of the export in a folder; `None` if the folder holds no export."""
    if (path / UNFINISHED).is_file():
        raise UserError(f"the export in {path} is not complete, or is still being written: export it again.")
    for file in (path / CONFIG, path / CARD):
        if not file.is_file():
            continue
        if file.stat().st_size > MAX_DESCRIPTION_BYTES:
            raise UserError(f"{file} has more than {MAX_DESCRIPTION_BYTES:,} bytes: it does not describe a network.")
        saved = read_json(file)
        if isinstance(saved, dict) and saved.get("kind") == EXPORT:
            try:
                return _decode(path, saved)
            except UserError as error:
                raise UserError(f"cannot read {file}: {error}") from None
            except Exception as error:  # an untrusted file may hold anything
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
        raise UserError(f"no network maps images of shape {str(shape)[:100]} to {len(classes)} classes.")
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
    """Return the network that the user gave, else the `described` one; code is imported only if the user names it.

    A custom network under another name, since its file was moved, keeps the normalisation that is described.
    """
    target = described.target if isinstance(described, Imported) else ""
    if given and (given != target or isinstance(described, InMemory)):
        chosen = models.get_model(given)
        if isinstance(described, Imported) and isinstance(chosen, Imported) and described.mean:
            return with_statistics(chosen, described.mean, described.std)  # type: ignore[no-any-return]
        return chosen
    if not given and isinstance(described, InMemory):
        raise UserError(
            f"the network of {place}, a {target[:100]}, was given to uiat.fit in memory: name a function that builds "
            f"it, {flag} module:callable (model='module:callable' in Python)."
        )
    if given != target:
        shown = target[:100]
        raise unnamed(f"the network of {place} is {shown!r}", (flag, shown), f"model={shown!r}")
    return described


def check_model(described: ModelConfig, given: str, place: Path) -> None:
    """Raise an error if the user named another network than the `described` one, or has to name it to import it."""
    if choose_model(described, given, place) != described:
        raise UserError(f"{given} is not the network of {place}: omit --model, or give the folder of another run.")


def trained_on(run: RunFolder, config: AnyConfig, data_dir: str | None = None) -> tuple[dict[str, Any], DataSpec]:
    """Return the description of a run's data: of its card, else of data.json, else of the data itself."""
    facts = run.read_card().get("data") or known_facts(run, config)
    if not facts:
        choose_data(config.data.name, None, run.path)
        facts = data_facts(config, load_splits(find_data(run, config.data), data_dir))
    try:
        return facts, DataSpec(len(facts["classes"]), int(facts["train"]), tuple(facts["shape"]))
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{run.result} does not describe the data: remove it, and try again.") from None


def build(model: ModelConfig, spec: DataSpec, file: Path) -> nn.Module:
    """Return the network with the weights of a file, in eval mode.

    A bundled network is first built on the meta device and compared with the file, so that a wrong size in an untrusted
    file allocates no memory.
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
    # `fitting_weights` has compared all tensors; one on the meta device is a counter that old files lack.
    network.load_state_dict({name: tensor for name, tensor in tensors.items() if not tensor.is_meta}, strict=False)
    return network.eval()


def check_network_size(run: RunFolder, model: ModelConfig, spec: DataSpec) -> None:
    """Refuse to resume a run whose config.json describes a network far larger than its checkpoints, which hold it."""
    files = [file for file in (run.checkpoint, run.previous) if file.is_file()]
    if not isinstance(model, NetworkOptions) or not files:
        return
    with torch.random.fork_rng([]), torch.device("meta"):
        weights = sum(tensor.nbytes for tensor in model.build(spec).state_dict().values())
    largest = max(file.stat().st_size for file in files)
    if weights > 10 * largest + MAX_DESCRIPTION_BYTES:  # damaged checkpoints are noticed where they are read
        raise UserError(
            f"{run.config} describes a network of {weights:,} bytes, and {files[0]} has {largest:,}: "
            "restore the values that the run was made with."
        )
