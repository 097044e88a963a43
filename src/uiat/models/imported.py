"""Custom classifiers: named as `module:callable`, as a network of a library, or given as a module in memory."""

import hashlib
import inspect
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import nn

from uiat.errors import UserError
from uiat.models.libraries import library_of
from uiat.models.wrappers import InputStatistics, Normalized, rounded, statistics_of
from uiat.plugins import import_callable
from uiat.types import DataSpec


@dataclass(frozen=True)
class Imported(InputStatistics):
    """A custom network: a callable that returns an `nn.Module` from [0, 1], or from normalised images, to logits."""

    target: str = ""
    """`module:callable`, imported from the current folder; it may take `num_classes`, `in_channels` or a DataSpec. Or
    `timm:NAME`, `transformers:OWNER/NAME` or `transformers:FOLDER`, the architecture of a network of that library."""
    features: str = ""
    """The layer whose input is the feature vector; empty: the last layer."""

    def build(self, data: DataSpec) -> nn.Module:
        """Import the callable, call it and return the network, which normalises its inputs if `mean` is given.

        A network that normalises them with the same numbers is not wrapped again.
        """
        self.check_statistics(data.shape[0])
        model = self._call(data)
        if self.features:  # else the network keeps its `penultimate_layer`, if it has one
            model.penultimate_layer = self.features  # type: ignore[assignment]
        same = statistics_of(model) == rounded(self.mean, self.std)
        return Normalized(model, self.mean, self.std) if self.mean and not same else model

    def _call(self, data: DataSpec) -> nn.Module:
        function = self.find()
        given = self.arguments(function, data)
        try:
            model = function(**given)
        except UserError:
            raise
        except Exception as error:  # custom code may raise anything; the cause is kept for a debugger
            raise UserError(f"{self.target} failed with {type(error).__name__} ({error}).") from error
        if not isinstance(model, nn.Module):
            raise UserError(f"{self.target} returned {type(model).__name__}: it must return an nn.Module.")
        return model

    def find(self) -> Any:
        """Return the callable."""
        if (found := library_of(self.target)) is not None:
            library, name = found
            return partial(library.build, name)
        function = import_callable(self.target, "--model")
        if isinstance(function, nn.Module):
            raise UserError(f"{self.target} is a network: name the class or the function that builds it.")
        return function

    def arguments(self, function: Any, data: DataSpec) -> dict[str, Any]:
        """Return the arguments: `num_classes` and `in_channels` by name, a DataSpec for one other required argument."""
        known = {"num_classes": data.num_classes, "in_channels": data.shape[0], "data": data}
        try:
            signature = inspect.signature(function)
            parameters = signature.parameters.values()
            given = {p.name: known[p.name] for p in parameters if p.name in known}
            kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            missing = [p.name for p in parameters if p.default is p.empty and p.name not in given and p.kind in kinds]
            given |= {missing[0]: data} if len(missing) == 1 else {}
            signature.bind(**given)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{self.target} could not be called ({error}): let it take no argument, or a DataSpec."
            ) from None
        return given


@dataclass(frozen=True)
class InMemory(Imported):
    """A network that was given to `uiat.fit`; read from a run, it is a custom network of this name."""

    tensors: str = ""
    """Digest of the names, shapes and types of its weights."""
    network: ClassVar[nn.Module | None] = None
    """The network, with the initial weights of the run; set by `of`, and not part of the configuration."""

    @staticmethod
    def of(network: nn.Module) -> "InMemory":
        """Return the configuration of a network."""
        facts = [f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in network.state_dict().items()]
        kind = type(network)
        digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()
        described = InMemory(f"{kind.__module__}:{kind.__qualname__}", tensors=digest)
        object.__setattr__(described, "network", network)
        return described

    def build(self, data: DataSpec) -> nn.Module:
        """Return a copy of the network; if only its name is known, import it."""
        return super().build(data) if self.network is None else deepcopy(self.network)
