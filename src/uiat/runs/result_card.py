"""Result cards: configuration, data, environment and accuracies of a run, an evaluation or an export, as JSON."""

import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from uiat.config import AnyConfig
from uiat.config_json import encode, to_json
from uiat.data import Splits
from uiat.data.custom import is_callable
from uiat.data.pixels import RESAMPLING
from uiat.distributed import world
from uiat.runs.run_folder import RunFolder
from uiat.runs.weights import DIGEST, is_measured_on

CARD_SCHEMA = 1
MEASURED = (
    *("accuracy", "interval95", "largest_distance", "seconds", "after", "per_class", "verdicts", "environment"),
    DIGEST,
)
"""The fields of an evaluation that are results; all others are its settings."""
SUBJECT = ("weights", "data", "sample", "exact", "processes")
"""The settings that all attacks of an evaluation share."""
EXPORT = "uiat export"
"""Marks the card of an export."""
RECORDED_PACKAGES = ("uiat", "torch", "numpy", "safetensors")


def training_card(config: AnyConfig, splits: Splits, device: torch.device, **facts: Any) -> dict[str, Any]:
    """Return the card of a finished run: its configuration, data and environment, and further `facts`."""
    return {
        "schema": CARD_SCHEMA,
        "config": to_json(config),
        "data": data_facts(config, splits),
        **facts,
        "processes": world(),
        "environment": environment(device),
        "evaluations": [],
    }


def data_facts(config: AnyConfig, splits: Splits) -> dict[str, Any]:
    """Return the name of the data, its classes, the shape of an image, and the size of each split."""
    return {
        "name": config.data.name,
        "classes": list(splits.train.classes),
        "shape": list(splits.spec.shape),
        "train": len(splits.train),
        **({"generated": len(splits.generated)} if splits.generated is not None else {}),
        "validation": len(splits.validation),
        "test": len(splits.test),
    }


def reopen_card(run: RunFolder, epochs: int) -> None:
    """Remove the result of a training with fewer epochs from the card, before the run trains further ones."""
    before = run.read_card().get("config", {}).get("train", {})
    if isinstance(before, dict) and before.get("epochs", epochs) != epochs:
        with run.changed_card() as card:
            for name in card.keys() - {"schema", "evaluations"}:
                del card[name]


def write_training_card(run: RunFolder, card: dict[str, Any]) -> None:
    """Write the card of a finished run; earlier evaluations are kept if they are of its current weights."""
    with run.changed_card() as kept:
        if "config" not in kept:
            entries = present_evaluations(run, kept)
            kept.clear()
            kept.update({**card, "evaluations": entries})


def evaluation_card(
    attacks: Mapping[str, dict[str, Any]], notices: list[str], device: torch.device, **facts: Any
) -> dict[str, Any]:
    """Return the card of an evaluation: the `facts` of its subject, and settings and results of each attack."""
    return {
        "schema": CARD_SCHEMA,
        **facts,
        "attacks": dict(attacks),
        "notices": notices,
        "environment": environment(device),
    }


def export_card(
    config: AnyConfig, data: dict[str, Any], result: Mapping[str, Any], evaluations: list[dict[str, Any]], **facts: Any
) -> dict[str, Any]:
    """Return the card of an exported network: data, method, training and accuracies, and further `facts`.

    `result` is the card of the run. Paths of custom data are cut to their last part, since an export is for others.
    """
    attack = config.validate.attack(config.method)
    options = encode(config.data)
    names = {"name": shown_data(options["name"]), "test": Path(options["test"]).name}
    generated = {**options["generated"], "file": Path(options["generated"]["file"]).name}
    return {
        "schema": CARD_SCHEMA,
        "kind": EXPORT,
        **facts,
        "data": {**data, "name": shown_data(data["name"]), "options": {**options, **names, "generated": generated}},
        "threat_model": {"norm": attack.norm, "eps": attack.eps},
        "evaluations": [{**entry, "data": shown_data(entry.get("data", data["name"]))} for entry in evaluations],
        "method": encode(config.method),
        "training": {
            **encode(config.train),
            "seed": config.seed,
            "seconds": result.get("training_seconds"),
            "passes": result.get("training_passes"),
            "environment": result.get("environment"),
            "finished": "training_seconds" in result,
        },
        "exported_with": environment("cpu")["versions"],
    }


def preprocessing(shape: Sequence[int]) -> dict[str, Any]:
    """Return, for a JSON file, how a picture becomes the input of a network for images of this shape (`to_pixels`)."""
    channels, height, width = shape
    return {
        "size": [height, width],
        "colour": "grey" if channels == 1 else "RGB",
        "resampling": RESAMPLING,
        "range": [0.0, 1.0],
    }


def shown_data(name: str) -> str:
    """Return the name of a data set as shown to others: of custom data, the last part of its path."""
    return name if is_callable(name) else Path(name).name


def add_evaluation(run: RunFolder, result: dict[str, Any], verdicts: Mapping[str, str]) -> None:
    """Add an evaluation to a run's card, an entry for each attack; a repeated measurement replaces its entry.

    `verdicts` are the packed verdicts for each image, by attack. Entries of other weights than the current ones are
    removed.
    """
    shared = {name: result[name] for name in (*SUBJECT, DIGEST)}
    with run.changed_card() as card:
        card["evaluations"] = present_evaluations(run, card)
        for name, attack in result["attacks"].items():
            facts = {"verdicts": verdicts[name], "environment": result["environment"]}
            entry = {**shared, "attack": name, **attack, **facts}
            others = [old for old in card["evaluations"] if _setting(old) != _setting(entry)]
            card["evaluations"] = [*others, entry]


def present_evaluations(run: RunFolder, card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the evaluations in a run's card that were measured on its current weights."""
    return [e for e in card["evaluations"] if is_measured_on(e, run.path / Path(str(e.get("weights", ""))).name)]


def _setting(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an entry."""
    return {name: value for name, value in entry.items() if name not in MEASURED}


def environment(device: torch.device | str) -> dict[str, Any]:
    """Return what can change the bits of a result: versions, threads, device, the CPU's kernels, commit."""
    device = torch.device(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "versions": {
            "python": platform.python_version(),
            **{p: v for p in RECORDED_PACKAGES if (v := package_version(p))},
        },
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "git_commit": _commit(),
    }


def package_version(package: str) -> str | None:
    """Return the version of an installed package; `None` if it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the git commit of the source tree; `None` for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
