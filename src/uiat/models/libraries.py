"""Networks of timm and transformers by name, and what their own configuration says of their inputs.

Only the architecture is taken from the library: weights are read as all others are (`runs/weights.py`). Both libraries
are imported late, since neither is a dependency, and no code of a repository is run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import isclose
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from uiat.errors import UserError, first_line
from uiat.models.wrappers import LogitsOf
from uiat.paths import user_path
from uiat.types import DataSpec


@dataclass(frozen=True)
class InputFormat:
    """The inputs for which a library configures a network."""

    mean: tuple[float, ...] = ()
    """Mean of each channel; empty if images are not normalised."""
    std: tuple[float, ...] = ()
    size: tuple[int, int] | None = None
    """Height and width; `None` if the configuration does not say."""


class TransformersNetwork(LogitsOf):
    """A classifier of transformers that returns its logits, and reads files of all versions of transformers."""

    def converted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return weights under the present names: transformers saves some networks under others."""
        names = self.model.state_dict().keys()
        if not names & tensors.keys() or names <= tensors.keys():
            return tensors
        network: Any = self.model
        with _quiet_transformers(), torch.random.fork_rng([]):
            read, report = type(network).from_pretrained(
                None, config=network.config, state_dict=tensors, ignore_mismatched_sizes=True, output_loading_info=True
            )
        mismatched = {entry[0] for entry in report["mismatched_keys"]}
        rest = {name: tensors[name] for name in {*report["unexpected_keys"], *mismatched} if name in tensors}
        absent = {*report["missing_keys"], *mismatched}
        return {**{name: value for name, value in read.state_dict().items() if name not in absent}, **rest}


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Show neither the progress bar nor the report of loading, since what does not fit is reported here."""
    logging = import_module("transformers.utils.logging")
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


class Timm:
    """Networks of timm, such as `timm:resnet18`."""

    def build(self, name: str, data: DataSpec) -> nn.Module:
        """Return a network with random weights, for the classes and channels of the data."""
        with self._errors(name) as timm:
            network: nn.Module = timm.create_model(
                name, pretrained=False, num_classes=data.num_classes, in_chans=data.shape[0]
            )
            return network

    def inputs(self, name: str) -> InputFormat:
        """Return mean, std and size of the network's `pretrained_cfg`."""
        with self._errors(name) as timm:
            known = timm.get_pretrained_cfg(name)
            if known is None:  # of a network that is registered without one: its default
                with torch.random.fork_rng([]):
                    network = timm.create_model(name, pretrained=False)
                known = SimpleNamespace(**(getattr(network, "pretrained_cfg", None) or network.default_cfg))
            _, height, width = known.input_size
            return InputFormat(tuple(known.mean), tuple(known.std), (height, width))

    @contextmanager
    def _errors(self, name: str) -> Iterator[Any]:
        timm = _library("timm", f"timm:{name}")
        if ":" in name or "/" in name:  # "hf-hub:…" would download it
            raise UserError(f"timm:{name} is not a name of timm's own networks: see timm.list_models().")
        with _named(f"timm:{name}", "see timm.list_models()"):
            yield timm


class Transformers:
    """Image classifiers of transformers, from a folder or the Hub, such as `transformers:owner/name`."""

    def build(self, name: str, data: DataSpec) -> nn.Module:
        """Return a network of this configuration with random weights, which returns logits for the data's classes."""
        with self._errors(name) as transformers:
            config = transformers.AutoConfig.from_pretrained(
                self._place(name), num_labels=data.num_classes, trust_remote_code=False
            )
            if hasattr(config, "num_channels"):
                config.num_channels = data.shape[0]
            return TransformersNetwork(
                transformers.AutoModelForImageClassification.from_config(config, trust_remote_code=False)
            )

    def inputs(self, name: str) -> InputFormat:
        """Return mean, std and size of the network's image processor; nothing if there is none."""
        with self._errors(name) as transformers:
            mixin = import_module("transformers.image_processing_base").ImageProcessingMixin
            # The processor itself may need torchvision. A network without one has unknown inputs.
            transformers.AutoConfig.from_pretrained(self._place(name), trust_remote_code=False)
            try:
                known, _ = mixin.get_image_processor_dict(self._place(name))
            except OSError:
                return InputFormat()
        if known.get("do_rescale", True) and not isclose(known.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-3):
            raise UserError(
                f"the image processor of transformers:{name} rescales bytes by {known['rescale_factor']}, but inputs "
                "are in [0, 1] here: give --mean and --std for these, with --model module:callable."
            )
        mean, std = (known.get(f"image_{part}") for part in ("mean", "std"))
        normalises = bool(known.get("do_normalize", True) and mean and std)
        size = self._size(known)
        return InputFormat(tuple(mean), tuple(std), size) if normalises else InputFormat(size=size)

    def _place(self, name: str) -> str:
        path = user_path(name)
        return str(path) if path.is_dir() else name

    def _size(self, known: dict[str, Any]) -> tuple[int, int] | None:
        """Return the height and width of the images that an image processor returns."""
        size = known.get("size") if known.get("do_resize", True) else None
        if known.get("do_center_crop", False):
            size = known.get("crop_size", size)
        if isinstance(size, int):
            return size, size
        if isinstance(size, dict) and {"height", "width"} <= size.keys():
            return size["height"], size["width"]
        edge = size.get("shortest_edge") if isinstance(size, dict) else None
        return None if edge is None else (edge, edge)

    @contextmanager
    def _errors(self, name: str) -> Iterator[Any]:
        transformers = _library("transformers", f"transformers:{name}")
        with _named(f"transformers:{name}", "give a folder, or owner/name, of an image classifier"):
            yield transformers


def _library(name: str, wanted_by: str) -> Any:
    """Import a library; without it, raise an error that names the package."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = (error.name or name).partition(".")[0]
        raise UserError(
            f"--model {wanted_by} needs the package {package}, which is not installed: pip install {package}."
        ) from None
    except Exception as error:  # a library that does not fit the others fails in any way
        raise UserError(f"--model {wanted_by}: {name} cannot be imported ({first_line(error)}).") from error


@contextmanager
def _named(network: str, advice: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of a library
        raise UserError(f"{network} cannot be built ({first_line(error)}): {advice}.") from error


LIBRARIES: dict[str, Timm | Transformers] = {"timm": Timm(), "transformers": Transformers()}
"""Libraries whose networks can be named as `LIBRARY:NAME`."""


def library_of(target: str) -> tuple[Timm | Transformers, str] | None:
    """Return the library and the name in it of `LIBRARY:NAME`; `None` for any other target."""
    library, _, name = target.partition(":")
    return (LIBRARIES[library], name) if library in LIBRARIES else None


def input_format(target: str) -> InputFormat:
    """Return the inputs of a network, if a library says them."""
    found = library_of(target)
    return InputFormat() if found is None else found[0].inputs(found[1])
