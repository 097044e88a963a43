"""Description of an exported network: `card.json` for programs, `README.md` for people or, as a model card, the Hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from uiat.config_json import encode
from uiat.escaping import code_span, markdown, one_line
from uiat.export.loaded_run import LoadedRun
from uiat.fields import show_number
from uiat.io import digest
from uiat.runs.hub import require_package
from uiat.runs.result_card import export_card, preprocessing
from uiat.runs.weights import EXPORTED

TITLE = "The Enemy of My Enemy is My Friend: Exploring Inverse Adversaries for Improving Adversarial Training"
BIBTEX = f"""\
@inproceedings{{dong2023enemy,
  title     = {{{TITLE}}},
  author    = {{Dong, Junhao and Moosavi-Dezfooli, Seyed-Mohsen and Lai, Jianhuang and Xie, Xiaohua}},
  booktitle = {{Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)}},
  pages     = {{24678--24687}},
  year      = {{2023}},
  doi       = {{10.1109/CVPR52729.2023.02364}}
}}"""

ROBUSTBENCH = ("cifar10", "cifar100")
"""Data sets with the same names in RobustBench."""
MAX_LISTED_CLASSES = 100
"""How many classes the README lists."""
NORM_NAMES = {"linf": "Linf", "l2": "L2"}
"""Norms as named by RobustBench and AutoAttack."""
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
"""The parts of an export's card that are needed to build and evaluate the network: the content of `config.json`."""


@dataclass(frozen=True)
class HubCard:
    """Options of a model card."""

    licence: str = "mit"
    """The licence of the weights, as named on the Hub."""
    name: str = ""
    """owner/name on the Hub, if known."""


def write_card(loaded: LoadedRun, folder: Path, files: list[str], requires: list[str]) -> dict[str, Any]:
    """Return the content of `card.json`: data, network, method, training and accuracies."""
    network = {
        **encode(loaded.config.model),
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "input": {"shape": list(loaded.spec.shape), "range": [0.0, 1.0], "dtype": "float32"},
        "output": {"shape": [loaded.spec.num_classes], "meaning": "logits"},
    }
    card = export_card(
        loaded.config,
        loaded.data,
        loaded.result,
        loaded.evaluations,
        load="from model import load; model = load()",
        requires=requires,
        files=files,
        self_contained="network.py" not in files,
        network=network,
        preprocessing=preprocessing(loaded.spec.shape),
        weights={"file": EXPORTED, "sha256": digest(folder / EXPORTED), "from": loaded.weights, **loaded.epoch},
    )
    return {**card, "citation": BIBTEX}


def write_readme(card: dict[str, Any], hub: HubCard | None = None) -> str:
    """Return the text of `README.md`: how to load the network, its inputs, and its accuracies.

    With `hub` it is a model card, which also has metadata, the training and the licence.
    """
    data, method, network = (card[part] for part in ("data", "method", "network"))
    title = f"{network['kind']} trained with {markdown(method['kind'])} on {markdown(data['name'])}"
    environment = Environment(
        loader=PackageLoader("uiat.export"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"markdown": markdown, "code_span": code_span, "setting": _setting, "measured_on": _attack}
    context: dict[str, Any] = {
        **dict(zip(("channels", "height", "width"), data["shape"], strict=True)),
        "card": card,
        "hub": hub,
        "metadata": "" if hub is None else _metadata(card, title, hub.licence).to_yaml(),
        "title": title,
        "data": markdown(data["name"]),
        "known": data["name"] in ROBUSTBENCH,
        "norm": NORM_NAMES[card["threat_model"]["norm"]],
        "eps": show_number(card["threat_model"]["eps"]),
        "named_classes": data["classes"] != [str(k) for k in range(len(data["classes"]))],
        "most_classes": MAX_LISTED_CLASSES,
        "training": _training(card),
    }
    return environment.get_template("README.md.j2").render(context)


def _attack(entry: dict[str, Any], card: dict[str, Any]) -> str:
    """Return the attack of an evaluation, with the data and the sample if they are not all test images of the run."""
    where = "" if entry["data"] == card["data"]["name"] else f" on {entry['data']}"
    part = "" if entry.get("sample", "all") == "all" else f" ({entry['sample']})"
    return f"{entry['attack']}{where}{part}"


def _setting(entry: dict[str, Any]) -> str:
    """Return norm, ε and steps of an attack."""
    if "eps" not in entry:
        return "–"
    step = show_number(entry.get("step", 0.0))
    step = step if "/" in step else f"{float(step):.4g}"
    steps = f", {entry['steps']} step{'s' * (entry['steps'] != 1)} of {step}" if "steps" in entry else ""
    restarts = f", {entry['restarts']} restarts" if entry.get("restarts", 1) > 1 else ""
    version = f", {entry['version']} version" if "version" in entry else ""
    return f"{NORM_NAMES[entry['norm']]}, {show_number(entry['eps'])}{steps}{restarts}{version}"


def _training(card: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about the training in a model card."""
    training, data, weights = card["training"], card["data"], card["weights"]
    environment = training["environment"] or {}
    versions = environment.get("versions", card["exported_with"])
    return {
        "method": f"{card['method']['kind']}, {show_settings(card['method'])}",
        "data": f"{data['name']}, {data['train']} training images of shape {tuple(data['shape'])}",
        "epochs": training["epochs"] if training["finished"] else f"{training['epochs']} planned, not finished",
        "weights": f"{weights['from']}, of epoch {weights.get('epoch', '?')}",
        "seed": training["seed"],
        "versions": ", ".join(f"{package} {version}" for package, version in versions.items()),
        "commit of uiat": environment.get("git_commit") or "of the installed version",
    }


def show_settings(part: dict[str, Any]) -> str:
    """Return the settings of a method and its parts as one line of text."""
    shown = []
    for name, value in part.items():
        if isinstance(value, dict):
            shown.append(f"{name}: {value.get('kind')} ({show_settings(value)})")
        elif name != "kind" and value is not None:
            shown.append(f"{name} {show_number(value) if type(value) is float else value}")
    return ", ".join(shown)


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
