"""Provenance of a run: the id, configuration, data, helper and environment that its checkpoints were written with.

A resumed run compares them with the current ones. Whatever determines the result must be the same; the rest may change,
and the result card lists what changed, and when. A run may get more epochs if its past does not depend on their number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from uiat.config import AnyConfig
from uiat.config_json import from_json, to_json
from uiat.data import Splits
from uiat.distributed import world
from uiat.errors import UserError
from uiat.runs.identity import check_same, identity, known_places
from uiat.runs.result_card import environment
from uiat.runs.run_folder import RunFolder
from uiat.runs.weights import weights_digest
from uiat.types import Clock

CHANGEABLE = (
    *("data.name", "data.test", "data.generated.file", "data.download", "method.helper"),
    *("train.on_nonfinite", "train.log_every", "train.checkpoint_minutes"),
)
"""Fields of a configuration that may change: paths, whose content is compared, and fields that affect no weight."""
RATES_PER_EPOCH = 64
"""Steps of an epoch at which learning rates are compared."""
_NAMED = 5
"""How many differing fields an error message names."""


@dataclass
class Provenance:
    """What this process trains a run with, and what changed when it was resumed before."""

    run: RunFolder
    config: AnyConfig
    content: dict[str, Any]
    """As saved in a checkpoint."""
    resumed: list[dict[str, Any]] = field(default_factory=list)
    """For each resume with a change: the epoch and step it started from, and each change as [before, after]."""

    @classmethod
    def of(
        cls, run: RunFolder, config: AnyConfig, splits: Splits, device: torch.device, helper: nn.Module | None
    ) -> "Provenance":
        """Return the provenance of a run in this process."""
        content = {
            "run_id": run.read_id(),
            "config": to_json(config),
            "data": identity(splits),
            "helper": None if helper is None else weights_digest(helper.state_dict()),
            "settings": {"processes": world(), "places": known_places(run), **environment(device)},
        }
        return cls(run, config, content)

    def state_dict(self) -> dict[str, Any]:
        """Return the content to save in a checkpoint."""
        return {**self.content, "resumed": self.resumed}

    def resume(self, saved: dict[str, Any], path: Path) -> str:
        """Compare with a checkpoint: raise an error if it is of another run, and record permitted changes.

        Return a notice if the checkpoint has no provenance, since an earlier version wrote it; else "".
        """
        before = saved.get("provenance")
        if before is None:
            return f"{path} is of an earlier version of uiat: it is not compared with {self.run.config} and the data"
        try:
            config, settings = _normal(before["config"]), _leaves(before["settings"])
            self._check(before, {**config, **self._extension(before["config"], saved)}, path)
            changes = {**_changes(config, _leaves(self.content["config"])), **_changes(settings, self._settings())}
            self.resumed = [*before["resumed"]]
        except (KeyError, TypeError, AttributeError, RecursionError):
            raise UserError(f"the provenance in {path} is damaged: move the file away.") from None
        if changes:
            self.resumed.append({"epoch": saved["epoch"], "step": saved["step"], "changes": changes})
        return ""

    def _extension(self, before: dict[str, Any], saved: dict[str, Any]) -> dict[str, int]:
        """Return the number of epochs if it is larger than that of a checkpoint, and its past does not depend on it."""
        epochs, done = self.config.train.epochs, saved["epoch"] - (saved["step"] == 0)
        earlier = from_json(before)
        extends = epochs > earlier.train.epochs and not obstacle(earlier, epochs, done)
        return {"train.epochs": epochs} if extends else {}

    def _settings(self) -> dict[str, Any]:
        return _leaves(self.content["settings"])

    def _check(self, before: dict[str, Any], config: dict[str, Any], path: Path) -> None:
        """Raise an error for a checkpoint of another run, configuration, data set or helper."""
        run, now = self.run, self.content
        if before["run_id"] != now["run_id"]:
            raise UserError(
                f"{path} belongs to another run than {run.config} (run ids {before['run_id']} and {now['run_id']}): "
                "restore the file that belongs to the other one."
            )
        if values := _differing(config, _leaves(now["config"]), "the checkpoint"):
            raise UserError(
                f"{run.config} changed since {path} was written: {values}. These are fixed "
                "within a run: restore the values of the checkpoint, or train with the new ones in another --out."
            )
        check_same(run.path, before["data"], now["data"], self.config.data.name)
        if None not in (before["helper"], now["helper"]) and before["helper"] != now["helper"]:
            raise UserError(
                f"the weights of the helper of {run.path} have changed since {path} was written: restore them, "
                "or start a new run."
            )


def extended(config: AnyConfig, epochs: int, done: int, place: Path) -> AnyConfig:
    """Return the configuration of a run in `place` with more epochs, of which `done` have begun.

    Raises a `UserError` if a run of so many epochs would have been another one in these.
    """
    before = config.train.epochs
    if epochs < before:
        raise UserError(f"{place} has {before} epochs, more than the {epochs} of --train.epochs: give more of them.")
    if reason := obstacle(config, epochs, min(done, before)):
        raise UserError(
            f"{place} has {before} epochs and cannot be extended to {epochs}: {reason}. Train a new run with "
            f"--train.epochs {epochs}; --init {place} starts it from these weights."
        )
    return replace(config, train=replace(config.train, epochs=epochs))


def obstacle(config: AnyConfig, epochs: int, done: int) -> str:
    """Return what in the first `done` epochs depends on the number of epochs; "" if the run can be extended."""
    plan, method = config.train, config.method
    if epochs == plan.epochs:
        return ""
    old, new = plan.epochs * RATES_PER_EPOCH, epochs * RATES_PER_EPOCH
    rates = ((plan.schedule.at(k, old), plan.schedule.at(k, new)) for k in range(done * RATES_PER_EPOCH))
    if any(first != second for first, second in rates):
        return f"its learning rate ({plan.schedule.name}) depends on the number of epochs"
    if method.needs_helper and not method.helper and method.helper_epochs is None:
        return "its helper was trained for as many epochs as the run has"
    for name, when in (("method.selectable_from", method.selectable_from), *_times(method, "method.")):
        first, second = (Clock(1, 0, count).epoch_at(when) for count in (plan.epochs, epochs))
        # the table of p is filled in the epoch before
        if first != second and min(first, second) - 1 <= done:
            return f"{name} = {when:g} is epoch {first} of {plan.epochs}, and epoch {second} of {epochs}"
    return ""


def _times(part: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the epochs, or fractions of the run, at which the enabled parts of a method change what they do."""
    if getattr(part, "enabled", True):
        for field in fields(part):
            value, name = getattr(part, field.name), f"{path}{field.name}"
            if is_dataclass(value):
                yield from _times(value, f"{name}.")
            elif field.name in ("start", "epoch") and isinstance(value, int | float):
                yield name, value


def edited_since(config: AnyConfig, card: dict[str, Any]) -> str:
    """Say what of a run's configuration was edited after its card was written; nothing where there is no such card."""
    try:
        before = _normal(card["config"])
    except (KeyError, UserError, RecursionError):  # not finished, or of a version with other fields
        return ""
    values = _differing(before, _leaves(to_json(config)), "result.json")
    return f"config.json was edited after the training: {values}" if values else ""


def config_differences(before: AnyConfig, now: AnyConfig, there: str, here: str) -> str:
    """Name the fields that decide a result and differ between two configurations, with both values and places."""
    return _differing(_leaves(to_json(before)), _leaves(to_json(now)), there, here)


def _differing(before: dict[str, Any], now: dict[str, Any], there: str, here: str = "config.json") -> str:
    """Name the fields that decide a result and differ between two places, with both values."""
    fixed = {name: pair for name, pair in _changes(before, now).items() if name not in CHANGEABLE}
    values = [f"{name} is {a!r} in {there} and {b!r} in {here}" for name, (a, b) in fixed.items()]
    more = f"; and {len(values) - _NAMED} more" if len(values) > _NAMED else ""
    return f"{'; '.join(values[:_NAMED])}{more}"


def _normal(saved: dict[str, Any]) -> dict[str, Any]:
    """Return the leaves of a saved configuration, decoded and encoded by this version."""
    return _leaves(to_json(from_json(saved)))


def _leaves(value: Any, name: str = "") -> dict[str, Any]:
    """Return the values of nested dictionaries by dotted name."""
    if not isinstance(value, dict):
        return {name: value}
    inner = [_leaves(part, f"{name}.{key}" if name else str(key)) for key, part in value.items()]
    return {leaf: part for leaves in inner for leaf, part in leaves.items()}


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the differing values as [before, after], with `None` for a missing one."""
    names = dict.fromkeys([*before, *after])
    pairs = {name: [before.get(name), after.get(name)] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
