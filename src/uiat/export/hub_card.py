"""The Hub's files of an export: `config.json`, and `README.md` as a model card with metadata."""

from typing import Any

from uiat.escaping import markdown, one_line
from uiat.export.model_card import NORM_NAMES
from uiat.fields import show_number
from uiat.runs.hub import require_package

TASK = "image-classification"
"""The task of the network, as the Hub names it."""
DATASETS = {
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "cifar100-coarse": "uoft-cs/cifar100",
    "svhn": "ufldl-stanford/svhn",
    "fashion-mnist": "zalando-datasets/fashion_mnist",
}
"""Names of data sets on the Hub."""
DESCRIBED = ("schema", "kind", "network", "weights", "data", "preprocessing", "threat_model")
"""The parts of an export's card that describe its network and inputs, as in config.json."""

USE = """\
## Loading

With uiat (`pip install '.[hub]'` in a clone of it), from the Hub or a folder; no downloaded code is run:

```python
import uiat

model = uiat.load("{name}")  # in eval mode, images in [0, 1]
```

`uiat predict {name} photo.jpg` classifies picture files.

Without uiat, in a copy of this folder:"""


def write_config(card: dict[str, Any]) -> dict[str, Any]:
    """Return the content of `config.json`: the parts of the card that are needed to build and evaluate the network."""
    return {part: card[part] for part in DESCRIBED}


def write_model_card(card: dict[str, Any], readme: str, files: list[str], *, licence: str, name: str) -> str:
    """Return the README of an export as a model card; `name` is its name on the Hub, if known."""
    title, _, rest = readme.partition("\n\n")
    metadata = _metadata(card, title.removeprefix("# "), licence).to_yaml()
    parts = [f"---\n{metadata}\n---\n\n{title}", USE.format(name=name or "owner/name"), rest.rstrip("\n")]
    author = " `network.py` has the licence of its author." if "network.py" in files else ""
    code = "`model.py` and `example.py` are from uiat and have the MIT licence."
    licence_lines = f"## Licence\n\nThe weights: {licence}.{author} {code}"
    return "\n\n".join([*parts, _training(card), licence_lines]) + "\n"


def _metadata(card: dict[str, Any], title: str, licence: str) -> Any:
    """Return the metadata of a model card (`ModelCardData`), with an entry of the model index for each accuracy."""
    threat, data = card["threat_model"], card["data"]["name"]
    return require_package("a model card").ModelCardData(
        license=one_line(licence),
        library_name="uiat",
        pipeline_tag=TASK,
        tags=["adversarial-robustness", "adversarial-training", card["method"]["kind"].lower(), threat["norm"]],
        datasets=[DATASETS[data]] if data in DATASETS else None,
        model_name=one_line(title),
        eval_results=[_eval_result(entry) for entry in card["evaluations"]] or None,
    )


def _eval_result(entry: dict[str, Any]) -> Any:
    """Return an accuracy as an `EvalResult`."""
    data, setting = entry["data"], ""
    if "eps" in entry:
        setting = f" under {entry['attack']} ({NORM_NAMES[entry['norm']]}, ε = {show_number(entry['eps'])})"
    low, high = entry["interval95"]
    note = f", 95 % interval {low:.2%} to {high:.2%}, {entry['n']} test images ({entry.get('sample', 'all')})"
    return require_package("a model card").EvalResult(
        task_type=TASK,
        dataset_type=DATASETS.get(data, one_line(data)),
        dataset_name=one_line(data),
        dataset_split="test",
        metric_type="accuracy",
        metric_value=entry["accuracy"],
        metric_name=one_line(f"accuracy{setting}{note}"),
    )


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
    """Return the settings of a method and its parts as one line of text."""
    shown = []
    for name, value in part.items():
        if isinstance(value, dict):
            shown.append(f"{name}: {value.get('kind')} ({show_settings(value)})")
        elif name != "kind" and value is not None:
            shown.append(f"{name} {show_number(value) if type(value) is float else value}")
    return ", ".join(shown)
