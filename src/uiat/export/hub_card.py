"""What the Hub needs beside an export: `config.json`, and a `README.md` that is a model card."""

import json
from typing import Any

from uiat.escaping import markdown, printable
from uiat.export.model_card import NORMS
from uiat.fields import show_number

DATASETS = {
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "cifar100-coarse": "uoft-cs/cifar100",
    "svhn": "ufldl-stanford/svhn",
    "fashion-mnist": "zalando-datasets/fashion_mnist",
}
"""The names of data sets on the Hub."""
DESCRIBED = ("schema", "kind", "network", "weights", "data", "threat_model")
"""The parts of an export's card that `uiat.load` and `uiat evaluate` need."""

USE = """\
## Loading

With uiat (`pip install '.[hub]'` in a clone of it), from the Hub or from a folder; no downloaded code is run:

```python
import uiat

model = uiat.load("{name}")  # in eval mode, images in [0, 1]
```

Without it, with PyTorch alone, in a copy of this folder:"""


def write_config(card: dict[str, Any]) -> dict[str, Any]:
    """Return the content of `config.json`: of the card what is needed to build and to measure the network."""
    return {part: card[part] for part in DESCRIBED}


def write_model_card(card: dict[str, Any], readme: str, files: list[str], *, licence: str, name: str) -> str:
    """Return the README of an export as a model card; `name` is the one on the Hub, where it is known."""
    title, _, rest = readme.partition("\n\n")
    metadata = "\n".join(yaml(write_metadata(card, title.removeprefix("# "), licence)))
    parts = [f"---\n{metadata}\n---\n\n{title}", USE.format(name=name or "owner/name"), rest.rstrip("\n")]
    code = "`network.py` has the licence of its author; `model.py`" if "network.py" in files else "`model.py`"
    licence_lines = f"## Licence\n\nThe weights: {licence}. {code} is from uiat and has the MIT licence."
    return "\n\n".join([*parts, _training(card), licence_lines]) + "\n"


def write_metadata(card: dict[str, Any], title: str, licence: str) -> dict[str, Any]:
    """Return the metadata of a model card, with an entry of the model index for each accuracy."""
    threat, data = card["threat_model"], card["data"]["name"]
    metadata = {
        "license": licence,
        "library_name": "uiat",
        "pipeline_tag": "image-classification",
        "tags": ["adversarial-robustness", "adversarial-training", card["method"]["kind"].lower(), threat["norm"]],
        "datasets": [DATASETS[data]] if data in DATASETS else [],
        "model-index": [{"name": title, "results": [_result(entry) for entry in card["evaluations"]]}],
    }
    if not card["evaluations"]:
        del metadata["model-index"]  # the Hub wants results in it
    return {key: value for key, value in metadata.items() if value}


def _result(entry: dict[str, Any]) -> dict[str, Any]:
    data, setting = entry["data"], ""
    if "eps" in entry:
        setting = f" under {entry['attack']} ({NORMS[entry['norm']]}, ε = {show_number(entry['eps'])})"
    low, high = entry["interval95"]
    note = f", 95 % interval {low:.2%} to {high:.2%}, {entry['n']} test images ({entry.get('sample', 'all')})"
    return {
        "task": {"type": "image-classification"},
        "dataset": {"type": DATASETS.get(data, data), "name": data, "split": "test"},
        "metrics": [{"type": "accuracy", "value": entry["accuracy"], "name": f"accuracy{setting}{note}"}],
    }


def _training(card: dict[str, Any]) -> str:
    training, data = card["training"], card["data"]
    environment = training["environment"] or {}
    versions, commit = environment.get("versions", card["exported_with"]), environment.get("git_commit")
    facts = {
        "method": f"{card['method']['kind']}, {show_settings(card['method'])}",
        "data": f"{data['name']}, {data['train']} training images of shape {tuple(data['shape'])}",
        "epochs": training["epochs"] if training["finished"] else f"{training['epochs']} planned, not finished",
        "weights": f"{card['weights']['from']}, of epoch {card['weights'].get('epoch', '?')}",
        "seed": training["seed"],
        "versions": ", ".join(f"{package} {version}" for package, version in versions.items()),
        "commit of uiat": commit or "of the installed version",
    }
    rows = (f"| {name} | {markdown(str(value))} |" for name, value in facts.items())
    return "\n".join(["## Training", "", "| | |", "| --- | --- |", *rows])


def show_settings(part: dict[str, Any]) -> str:
    """Return the settings of a method and its parts as one line of words."""
    shown = []
    for name, value in part.items():
        if isinstance(value, dict):
            shown.append(f"{name}: {value.get('kind')} ({show_settings(value)})")
        elif name != "kind" and value is not None:
            shown.append(f"{name} {show_number(value) if type(value) is float else value}")
    return ", ".join(shown)


def yaml(value: Any, indent: str = "") -> list[str]:
    """Return lines of YAML for dictionaries and lists of plain values; scalars are JSON, which is YAML as well."""
    entries = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    lines: list[str] = []
    for key, item in entries:
        head = f"{indent}-" if key is None else f"{indent}{key}:"
        if not isinstance(item, dict | list):
            shown = printable(item) if isinstance(item, str) else item
            lines.append(f"{head} {json.dumps(shown, ensure_ascii=False)}")
            continue
        inner = yaml(item, f"{indent}  ")
        lines += [f"{head} {inner[0].lstrip()}", *inner[1:]] if key is None else [head, *inner]
    return lines
