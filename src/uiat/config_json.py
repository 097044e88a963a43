"""The JSON of a configuration, of which only registered classes are read."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from uiat.attacks import ATTACKS, PGD, Attack
from uiat.balls import Norm
from uiat.config import AnyConfig, Config, Training, Validation
from uiat.data.data_config import DataConfig
from uiat.errors import UserError, unknown
from uiat.fields import check_numbers, in_key, unchecked
from uiat.methods import METHODS, Method, MethodConfig, UIATPlugIn
from uiat.models import MODELS, Imported, InMemory, ModelConfig
from uiat.targets import InstanceInverse, UniversalInverse
from uiat.typed import check_fields, fits, show_value
from uiat.types import DataSpec

CONFIG_SCHEMA = 1
"""Version of saved configurations."""


IMPORTS = "imports"
"""The key of a run's imported modules, next to its configuration."""
RUN_ID = "run_id"
"""The key of the id that a run's checkpoints share, next to its configuration."""


@dataclass(frozen=True)
class UnknownPart:
    """A part of a saved method, such as its attack, whose class is not registered: its values can be read."""

    saved: dict[str, Any]
    """The content of the file."""
    values: dict[str, Any]
    """Its decoded fields."""

    @property
    def eps(self) -> float:
        """ε of an attack; 8/255 if it has none."""
        eps: Any = self.values.get("eps")
        return eps if fits(eps, float) else 8 / 255

    radius = eps

    @property
    def norm(self) -> Norm:
        """The norm of an attack's ball; L∞ if it has none."""
        return "l2" if self.values.get("norm") == "l2" else "linf"

    def __call__(self, model: object, x: object, y: object, draws: object = None) -> Any:
        """Raise a `UserError`: an unknown attack cannot be run."""
        raise self.refusal("attack")

    def refusal(self, part: str) -> UserError:
        """Return the error for using it."""
        kind = self.saved["kind"]
        return UserError(f"the {part} {kind!r} is not known here: name the module that registers it with --import.")


class UnknownMethod(UnknownPart, MethodConfig):
    """A saved method whose class is not registered: it can be shown and saved, but not built."""

    @property
    def attack(self) -> Attack | None:  # type: ignore[override]  # read-only
        """The attack; its class may be unknown, too."""
        attack = self.values.get("attack")
        return attack if fits(attack, Attack) else None

    @property
    def inverse(self) -> InstanceInverse | UniversalInverse | None:  # type: ignore[override]
        """The inverse attack of the method or of its plug-in."""
        plug_in = self.values.get("uiat")
        if isinstance(plug_in, UIATPlugIn) and plug_in.enabled:
            return plug_in.inverse
        inverse = self.values.get("inverse")
        return inverse if isinstance(inverse, InstanceInverse | UniversalInverse) else None

    def build(self, data: DataSpec, *, seed: int = 0, helper: object = None) -> Method:
        """Raise a `UserError`: an unknown method cannot be built."""
        raise self.refusal("method")


def to_json(config: AnyConfig, *, key: bool = False) -> dict[str, Any]:
    """Return a configuration as plain JSON values, with a schema version; `key` as in `encode`."""
    return {"schema": CONFIG_SCHEMA, **encode(config, key=key)}


def from_json(saved: dict[str, Any]) -> AnyConfig:
    """Return the configuration from its JSON; only registered classes are instantiated.

    A method of an unknown kind becomes an `UnknownMethod`: its network can be evaluated without it.
    """
    if not isinstance(saved, dict) or saved.get("schema") != CONFIG_SCHEMA:
        raise UserError(
            f"the configuration is not of schema {CONFIG_SCHEMA}: it is damaged, or was written by another version."
        )
    with unchecked():
        config = _decode({k: v for k, v in saved.items() if k not in ("schema", IMPORTS, RUN_ID)}, _kinds())
    if not isinstance(config, Config):
        raise UserError("the file does not hold a run's configuration.")
    if type(config.model) not in (Imported, InMemory, *map(type, MODELS.values())):
        raise UserError(f"{type(config.model).__name__} is not a network.")
    check_numbers(config)
    return config


def model_from_json(saved: dict[str, Any]) -> ModelConfig:
    """Return a network from its JSON; only those of `MODELS`, and `Imported`, are known."""
    networks = [*MODELS.values(), Imported()]
    if saved.get("kind") not in {type(network).__name__ for network in networks}:
        raise UserError(
            f"the network {str(saved.get('kind'))[:100]!r} is not known here: import the module that registers it "
            "(--import on the command line)."
        )
    with unchecked():
        model: ModelConfig = _decode(saved, {part.__name__: part for part in _parts(networks)})
    check_numbers(model, "the network's ")
    return model


def encode(value: Any, *, key: bool = False) -> Any:
    """Return dataclasses as dictionaries with their `kind`, tuples as lists, and all else unchanged.

    With `key`, return what identifies a result: without fields that were added later and have their defaults, and with
    fields that were removed later.
    """
    if isinstance(value, UnknownPart):
        return value.saved
    if is_dataclass(value) and not isinstance(value, type):
        kept = [f for f in fields(value) if not key or in_key(value, f)]
        removed = _removed_in_key(value) if key else {}
        values = {f.name: encode(getattr(value, f.name), key=key) for f in kept}
        return {"kind": type(value).__name__, **values, **removed}
    return [encode(v, key=key) for v in value] if isinstance(value, tuple | list) else value


def _decode(value: Any, kinds: dict[str, type], unknown_as: type[UnknownPart] | None = None) -> Any:
    """Return the configuration of a saved value; one of an unknown kind becomes an `unknown_as`."""
    if isinstance(value, list):
        return tuple(_decode(v, kinds, unknown_as) for v in value)  # configurations are frozen
    if not isinstance(value, dict):
        return value
    kind = value.get("kind")
    if not isinstance(kind, str):
        raise UserError(f"a part of the configuration has the kind {show_value(kind)}, which is not a name.")
    within = None if unknown_as is None else UnknownPart
    if kind not in kinds and unknown_as is not None:
        return unknown_as(value, {name: _decode(v, kinds, within) for name, v in value.items() if name != "kind"})
    if kind not in kinds:
        hint = "A custom part needs --import with the module that registers it."
        raise UserError(f"{unknown('kind of configuration', kind[:100], kinds)} {hint}")
    cls = kinds[kind]
    known = {f.name for f in fields(cls)}
    extra = sorted(value.keys() - known - {"kind"})
    if extra:
        raise UserError(
            f"the configuration of {kind} has a field {extra[0]!r} that this version of uiat does not know."
        )
    values = {
        name: _decode(v, kinds, UnknownMethod if cls is Config and name == "method" else within)
        for name, v in value.items()
        if name != "kind"
    }
    try:
        part = cls(**values)
    except TypeError as error:  # a field without a default is missing
        raise UserError(f"the configuration of {kind} is incomplete ({error}).") from None
    check_fields(part, {PGD: tuple(map(type, ATTACKS.values()))})  # SAT(attack=Custom()) is valid, too
    return part


def _removed_in_key(part: Any) -> dict[str, Any]:
    """Return `cutmix_with`, a removed field that keys of results still have: the source of CutMix's windows."""
    return {"cutmix_with": "class" if part.cutmix else "any"} if isinstance(part, DataConfig) else {}


def _kinds() -> dict[str, type]:
    """Collect the dataclasses of every registered part, at each call: custom parts may be registered at any time."""
    registered = [*ATTACKS.values(), *METHODS.values(), *MODELS.values()]
    roots: list[Any] = [DataConfig(), Training(), Validation(), Imported(), InMemory(), *registered]
    return {"Config": Config, **{cls.__name__: cls for cls in _parts(roots)}}


def _parts(values: Iterable[Any]) -> Iterable[type]:
    for value in values:
        if is_dataclass(value) and not isinstance(value, type):
            yield type(value)
            yield from _parts(getattr(value, f.name) for f in fields(value))
