"""Description of an exported network: `card.json` for programs, `README.md` for people or, as a model card, the Hub."""

from pathlib import Path
from typing import Any

from uiat.config_json import encode
from uiat.data.decode import preprocessing
from uiat.escaping import code_span, markdown, one_line
from uiat.export.loaded_run import LoadedRun
from uiat.fields import show_number
from uiat.io import digest
from uiat.runs.hub import require_package
from uiat.runs.result_card import export_card
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

PLAIN = """\
```python
import torch
from model import load  # run in this folder, or put it on sys.path

model = load()  # an nn.Module in eval mode; load(device="cuda") for a GPU
x = torch.rand(4, {shape})  # images in [0, 1], not normalised
with torch.no_grad():
    logits = model(x)
print(logits.shape)  # (4, {classes})
```"""

BENCHMARK = """\
[RobustBench](https://github.com/RobustBench/robustbench) evaluates it directly, on the test images of {data} under
AutoAttack, at any ε. Its leaderboards compare only ε = 8/255 in Linf and, for CIFAR-10, 0.5 in L2; its `load_model`
knows only networks of its own model zoo.

```python
import torch
from robustbench.eval import benchmark
from model import load

device = torch.device("cuda:0")
clean, robust = benchmark(
    load(), dataset="{data}", threat_model="{norm}", eps={eps}, device=device, batch_size=256
)
```"""

INPUTS = """\
Inputs are images in [0, 1] of {height}×{width} pixels (height × width) with {channels} channel{s}. It was trained at
this size; its accuracy at another is unknown, even if it accepts one. Images of other sizes were resized before
training: a side that shrinks is averaged over areas (`torch.nn.functional.interpolate(x, size, mode="area")`), one that
grows is interpolated (`mode="bilinear"`), and pixels are rounded to 1/255.

`python example.py photo.jpg` does this for picture files and prints the most probable classes; it also needs pillow."""
ONNX_NOTE = """\
`model.onnx` is the same network, with the input `x` and the output `logits`; normalisation is inside. Its metadata has
the size, colour and resampling of images and the names of the classes, each as JSON."""

ANOTHER_SIZE = """\
RobustBench's `benchmark` would feed it images of 32×32 pixels and measure another accuracy: it was trained on {data} at
{height}×{width}."""
ANOTHER_SET = """\
RobustBench's `benchmark` cannot evaluate it: it has images of CIFAR-10, CIFAR-100 and ImageNet only, and this network
was trained on {data}."""
AUTOATTACK = """\
{why} [AutoAttack](https://github.com/fra31/auto-attack), which RobustBench runs, takes images x of
this size in [0, 1] and their labels y:

```python
from autoattack import AutoAttack
from model import load

AutoAttack(load(), norm="{norm}", eps={eps}, device="cpu").run_standard_evaluation(x, y)
```"""


def write_card(loaded: LoadedRun, folder: Path, files: list[str], requires: list[str]) -> dict[str, Any]:
    """Return the content of `card.json`: data, network, method, training and accuracies."""
    network = {
        **encode(loaded.config.model),
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "input": {"shape": list(loaded.spec.shape), "range": [0.0, 1.0], "dtype": "float32"},
        "output": {"shape": [loaded.spec.num_classes], "meaning": "logits"},
    }
    return {
        **export_card(
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
        ),
        "citation": BIBTEX,
    }


def write_readme(loaded: LoadedRun, files: list[str], requires: list[str]) -> str:
    """Return the text of `README.md`: how to load the network, its inputs, and its accuracies."""
    attack = loaded.config.validate.attack(loaded.config.method)
    name, shape = Path(loaded.data["name"]).name, tuple(loaded.data["shape"])  # custom data is named by its path
    values = {
        "norm": NORM_NAMES[attack.norm],
        "eps": show_number(attack.eps),
        "data": markdown(name),
        "shape": ", ".join(map(str, shape)),
        **dict(zip(("channels", "height", "width"), shape, strict=True)),
        "s": "s" * (shape[0] != 1),
        "classes": loaded.spec.num_classes,
    }
    method, network = encode(loaded.config.method)["kind"], type(loaded.config.model).__name__
    known = name in ROBUSTBENCH
    whole = known and shape == (3, 32, 32)
    values["why"] = (ANOTHER_SIZE if known else ANOTHER_SET).format(**values)
    note = ["`network.py` is a copy of the file that defined the network in training; it may import other packages."]
    return "\n\n".join(
        [
            f"# {network} trained with {markdown(method)} on {markdown(name)}",
            f"`model.py` and `model.safetensors` need only {' and '.join([', '.join(requires[:-1]), requires[-1]])}.",
            *(note if "network.py" in files else []),
            PLAIN.format(**values),
            INPUTS.format(**values),
            *([ONNX_NOTE] if "model.onnx" in files else []),
            *_classes(loaded.data["classes"]),
            (BENCHMARK if whole else AUTOATTACK).format(**values),
            "## Accuracy",
            _accuracies(loaded.evaluations, loaded.data["name"]),
            "`card.json` has the settings of every attack, the method's hyper-parameters and the training.",
            "## Citation",
            f"```bibtex\n{BIBTEX}\n```\n",
        ]
    )


def _classes(names: list[str]) -> list[str]:
    """Return the names of the classes, unless they are only numbers."""
    if names == [str(k) for k in range(len(names))]:
        return []
    shown = ", ".join(map(code_span, names[:MAX_LISTED_CLASSES]))
    more = f" and {len(names) - MAX_LISTED_CLASSES} more, in `card.json`" if len(names) > MAX_LISTED_CLASSES else ""
    return [f"The classes, in the order of the logits: {shown}{more}."]


def _accuracies(evaluations: list[dict[str, Any]], data: str) -> str:
    if not evaluations:
        return "It has not been evaluated on test images: run `uiat evaluate` on its run, and export again."
    lines = ["| attack | norm, ε | accuracy | 95 % interval | images |", "| --- | --- | --- | --- | --- |"]
    for entry in evaluations:
        low, high = entry["interval95"]
        where = "" if entry.get("data", data) == data else f" on {Path(entry['data']).name}"
        part = "" if entry.get("sample", "all") == "all" else f" ({entry['sample']})"
        cells = f"{markdown(_setting(entry))} | {entry['accuracy']:.2%} | {low:.2%} – {high:.2%} | {entry['n']}"
        lines.append(f"| {markdown(entry['attack'] + where + part)} | {cells} |")
    return "\n".join(lines)


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

USE = """\
## Loading

With uiat (`pip install '.[hub]'` in a clone of it), from the Hub or a folder; no downloaded code is run:

```python
import uiat

model = uiat.load("{name}")  # in eval mode, images in [0, 1]
```

`uiat predict {name} photo.jpg` classifies picture files.

Without uiat, in a copy of this folder:"""


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
