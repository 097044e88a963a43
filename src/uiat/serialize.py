"""Configurations as JSON: each part carries its `kind`, so that it comes back as the object it was."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from uiat.added import in_key
from uiat.attacks import Attack
from uiat.balls import Norm
from uiat.config import AnyConfig, Config, Training, Validation
from uiat.data.config import DataConfig
from uiat.errors import UserError, unknown
from uiat.methods import METHODS, Method, MethodConfig, UIATPlugIn
from uiat.models import MODELS, Imported
from uiat.targets import InstanceInverse, UniversalInverse
from uiat.types import DataSpec

SCHEMA = 1
"""Grows when a saved configuration changes its meaning."""


IMPORTS = "imports"
"""The key, beside a run's configuration, of the modules it was made with."""


@dataclass(frozen=True)
class UnknownPart:
    """A part of a saved method, such as its attack, whose class is not known here: its values can be read."""

    saved: dict[str, Any]
    """As the file has it."""
    values: dict[str, Any]
    """Its fields, those of known classes as they were."""

    @property
    def eps(self) -> float:
        """ε of an attack; 8/255 where it has none."""
        return float(self.values.get("eps", 8 / 255))

    @property
    def radius(self) -> float:
        """How far from x the result of an attack can be, as far as it is known."""
        return self.eps

    @property
    def norm(self) -> Norm:
        """The norm of an attack's ball; L∞ where it names none."""
        return "l2" if self.values.get("norm") == "l2" else "linf"

    def __call__(self, model: object, x: object, y: object, draws: object = None) -> Any:
        """Refuse to attack."""
        raise self.refusal("attack")

    def refusal(self, part: str) -> UserError:
        """Return the error that says what is needed to use it."""
        return UserError(
            f"the {part} {self.saved['kind']!r} is not known here: name the module that registers it with --import."
        )


class UnknownMethod(UnknownPart, MethodConfig):
    """A saved method whose class is not known here: it can be shown and saved, but not built."""

    @property
    def attack(self) -> Attack | None:  # type: ignore[override]  # read-only
        """How x̂ was found; its class may be unknown, too."""
        return self.values.get("attack")

    @property
    def inverse(self) -> InstanceInverse | UniversalInverse | None:  # type: ignore[override]
        """How inverse examples were found, by the method or by its plug-in."""
        plug_in = self.values.get("uiat")
        if isinstance(plug_in, UIATPlugIn) and plug_in.enabled:
            return plug_in.inverse
        inverse = self.values.get("inverse")
        return inverse if isinstance(inverse, InstanceInverse | UniversalInverse) else None

    def build(self, data: DataSpec, *, seed: int = 0, helper: object = None) -> Method:
        """Refuse."""
        raise self.refusal("method")


def to_json(config: AnyConfig, *, key: bool = False) -> dict[str, Any]:
    """Return a configuration as plain JSON values, with a schema version; `key` as in `encode`."""
    return {"schema": SCHEMA, **encode(config, key=key)}


def from_json(saved: dict[str, Any]) -> AnyConfig:
    """Return the configuration that `to_json` was given; only known kinds are built.

    A method of an unknown kind comes back as an `UnknownMethod`: to measure a network nobody has to know it.
    """
    if not isinstance(saved, dict) or saved.get("schema") != SCHEMA:
        raise UserError(f"the configuration is not of schema {SCHEMA}: it was written by another version of uiat.")
    config = _decode({k: v for k, v in saved.items() if k not in ("schema", IMPORTS)}, _kinds())
    if not isinstance(config, Config):
        raise UserError("the file does not hold a run's configuration.")
    return config


def encode(value: Any, *, key: bool = False) -> Any:
    """Return dataclasses as dictionaries with their `kind`, tuples as lists, and all else as it is.

    With `key`, what identifies a result: fields that were added later and have their defaults are left out.
    """
    if isinstance(value, UnknownPart):
        return value.saved
    if is_dataclass(value) and not isinstance(value, type):
        kept = [f for f in fields(value) if not key or in_key(value, f)]
        return {"kind": type(value).__name__, **{f.name: encode(getattr(value, f.name), key=key) for f in kept}}
    return [encode(v, key=key) for v in value] if isinstance(value, tuple | list) else value


def _decode(value: Any, kinds: dict[str, type], unknown_as: type[UnknownPart] | None = None) -> Any:
    """Return the configuration that a saved value stands for; `unknown_as` is made of one whose kind is not known."""
    if isinstance(value, list):
        return tuple(_decode(v, kinds, unknown_as) for v in value)  # configurations are frozen
    if not isinstance(value, dict):
        return value
    kind = str(value.get("kind"))
    within = None if unknown_as is None else UnknownPart
    if kind not in kinds and unknown_as is not None:
        return unknown_as(value, {name: _decode(v, kinds, within) for name, v in value.items() if name != "kind"})
    if kind not in kinds:
        hint = "A part of your own needs --import with the module that registers it."
        raise UserError(f"{unknown('kind of configuration', kind, kinds)} {hint}")
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
        return cls(**values)
    except TypeError as error:  # a field without a default is missing
        raise UserError(f"the configuration of {kind} is not whole ({error}).") from None


def _kinds() -> dict[str, type]:
    """Collect the dataclasses of every registered part; looked up anew, as one's own may have been registered since."""
    roots: list[Any] = [DataConfig(), Training(), Validation(), Imported(), *METHODS.values(), *MODELS.values()]
    return {"Config": Config, **{cls.__name__: cls for cls in _parts(roots)}}


def _parts(values: Iterable[Any]) -> Iterable[type]:
    for value in values:
        if is_dataclass(value) and not isinstance(value, type):
            yield type(value)
            yield from _parts(getattr(value, f.name) for f in fields(value))
