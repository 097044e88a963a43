"""Fields of a run's JSON files, and checks of what is read from them: they may have been edited or damaged."""

import json
from pathlib import Path
from typing import Any

from uiat.balls import Norm
from uiat.config_json import IMPORTS
from uiat.errors import UserError
from uiat.plugins import Import
from uiat.typed import check_record, fits, show_value

_DICT = dict[str, Any]
DATA_FIELDS: dict[str, Any] = {
    **{"name": str, "classes": list[str], "shape": list[int]},
    **dict.fromkeys(("train", "validation", "test", "generated"), int),
}
CARD_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("config", "data", "environment"), _DICT),
    **{"best": dict[str, float], "training_seconds": float, "training_passes": dict[str, float]},
    **{"processes": int, "evaluations": list[_DICT]},
}
EVALUATION_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("weights", "data", "sample", "attack", "split", "verdicts", "version"), str),
    **dict.fromkeys(("eps", "step", "accuracy", "seconds"), float),
    **dict.fromkeys(("n", "steps", "restarts", "seed", "processes", "batch_size"), int),
    **{"exact": bool, "norm": Norm, "interval95": tuple[float, float], "per_class": dict[str, float]},
    **{"environment": _DICT},
}
IDENTITY_FIELDS: dict[str, Any] = {
    **{"classes": list[str], "shape": list[int], "places": dict[str, str]},
    **dict.fromkeys(("train", "validation", "test"), _DICT),
}
"""The types of the fields in a run's JSON files."""
METRICS_FIELDS = {"epoch": {"epoch", "val_natural", "val_robust"}, "step": {"epoch", "step", "lr"}}
"""The required fields of a record in metrics.jsonl, by kind."""


def check_types(path: Path, saved: Any, kinds: dict[str, Any]) -> None:
    """Raise an error unless the content of a file is a dictionary with values of these types."""
    if not isinstance(saved, dict):
        raise UserError(f"cannot read {path}: it holds {show_value(saved)}, not a dictionary; move it away.")
    try:
        check_record(saved, kinds)
    except UserError as error:
        raise UserError(f"cannot read {path}: {str(error).rstrip('.')}; move it away.") from None


def read_metrics(path: Path, *, growing: bool = False) -> list[dict[str, Any]]:
    """Return the records of metrics.jsonl; empty if there is no file.

    A line that is no record is an error, or skipped if the file is `growing`: a process may be writing its last line.
    """
    try:
        text = path.read_text("utf-8", "replace" if growing else None)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        if growing:
            return []
        raise UserError(f"cannot read {path}: {error}.") from None
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            record = json.loads(line)
            if not _is_record(record):
                raise ValueError("it is not a record of a step or an epoch")
            records.append(record)
        except (ValueError, RecursionError) as error:
            if not growing:
                raise UserError(f"cannot read line {number} of {path}: {error}.") from None
    return records


def _is_record(line: object) -> bool:
    """Whether a value is a record of metrics.jsonl: a dictionary that has, if it is of a known kind, its fields."""
    if not isinstance(line, dict) or line.get("kind") not in tuple(METRICS_FIELDS):
        return isinstance(line, dict)
    numbers = {name: value for name, value in line.items() if name != "kind"}
    counts = all(fits(numbers.get(name, 1), int) and numbers.get(name, 1) > 0 for name in ("epoch", "step"))
    return counts and METRICS_FIELDS[line["kind"]] <= numbers.keys() and fits(numbers, dict[str, float | bool])


def parse_imports(saved: Any, file: Path) -> tuple[Import, ...]:
    """Return the custom modules that a configuration from a file names."""
    entries = saved.get(IMPORTS, []) if isinstance(saved, dict) else []
    try:
        if not all(isinstance(text, str) for entry in entries for text in entry.values()):
            raise TypeError
        return tuple(Import(**entry) for entry in entries)
    except (TypeError, AttributeError):
        raise UserError(f"the imports in {file} are not a list of names and folders: correct them.") from None
