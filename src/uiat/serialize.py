"""Configurations as JSON: each part carries its `kind`, so that it comes back as the object it was."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from uiat.added import in_key
from uiat.config import AnyConfig, Config, Training, Validation
from uiat.data.config import DataConfig
from uiat.errors import UserError, unknown
from uiat.methods import METHODS, Method
from uiat.models import MODELS, Imported
from uiat.types import DataSpec

SCHEMA = 1
"""Grows when a saved configuration changes its meaning."""


IMPORTS = "imports"
"""The key, beside a run's configuration, of the modules it was made with."""


@dataclass(frozen=True)
class UnknownMethod:
    """A saved method, or a part of one, whose class is not known here: its values can be read, and nothing be built."""

    saved: dict[str, Any]
    """As the file has it."""
    values: dict[str, Any]
    """Its fields, those of known classes as they were."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def build(self, data: DataSpec, *, seed: int = 0, helper: object = None) -> Method:
        """Refuse."""
        raise UserError(
            f"the method {self.saved['kind']!r} is not known here: name the module that registers it with --import."
        )


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

    With `key`, what identifies a result: fields that were added later and have their defaults are left out, and fields
    that were removed later are still there.
    """
    if isinstance(value, UnknownMethod):
        return value.saved
    if is_dataclass(value) and not isinstance(value, type):
        kept = [f for f in fields(value) if not key or in_key(value, f)]
        removed = _removed_in_key(value) if key else {}
        values = {f.name: encode(getattr(value, f.name), key=key) for f in kept}
        return {"kind": type(value).__name__, **values, **removed}
    return [encode(v, key=key) for v in value] if isinstance(value, tuple | list) else value


def _decode(value: Any, kinds: dict[str, type], within_method: bool = False) -> Any:
    if isinstance(value, list):
        return tuple(
            _decode(v, kinds, within_method) for v in value
        )  # configurations are frozen: every sequence is a tuple
    if not isinstance(value, dict):
        return value
    kind = str(value.get("kind"))
    if kind not in kinds and within_method:
        return UnknownMethod(value, {name: _decode(v, kinds, True) for name, v in value.items() if name != "kind"})
    if kind not in kinds:
        hint = "A part of your own needs --import with the module that registers it."
        raise UserError(f"{unknown('kind of configuration', kind, kinds)} {hint}")
    cls = kinds[kind]
    value = _without_removed(value) if cls is DataConfig else value
    known = {f.name for f in fields(cls)}
    extra = sorted(value.keys() - known - {"kind"})
    if extra:
        raise UserError(
            f"the configuration of {kind} has a field {extra[0]!r} that this version of uiat does not know."
        )
    values = {
        name: _decode(v, kinds, within_method or (cls is Config and name == "method"))
        for name, v in value.items()
        if name != "kind"
    }
    try:
        return cls(**values)
    except TypeError as error:  # a field without a default is missing
        raise UserError(f"the configuration of {kind} is not whole ({error}).") from None


def _removed_in_key(part: Any) -> dict[str, Any]:
    """Return the fields that keys of results have had before they were removed: where CutMix took its windows from."""
    return {"cutmix_with": "class" if part.cutmix else "any"} if isinstance(part, DataConfig) else {}


def _without_removed(saved: dict[str, Any]) -> dict[str, Any]:
    """Return the saved configuration of data without `cutmix_with`, which earlier versions wrote."""
    if saved.get("cutmix_with") == "any" and saved.get("cutmix"):
        raise UserError(
            "the configuration has CutMix across classes (data.cutmix_with any), which this version of uiat no longer "
            "has: CutMix stays within a class."
        )
    return {name: value for name, value in saved.items() if name != "cutmix_with"}


def _kinds() -> dict[str, type]:
    """Collect the dataclasses of every registered part; looked up anew, as one's own may have been registered since."""
    roots: list[Any] = [DataConfig(), Training(), Validation(), Imported(), *METHODS.values(), *MODELS.values()]
    return {"Config": Config, **{cls.__name__: cls for cls in _parts(roots)}}


def _parts(values: Iterable[Any]) -> Iterable[type]:
    for value in values:
        if is_dataclass(value) and not isinstance(value, type):
            yield type(value)
            yield from _parts(getattr(value, f.name) for f in fields(value))
