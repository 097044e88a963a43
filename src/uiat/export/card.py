"""`card.json`: what was trained, on what, how, and what it reached, for programs; nothing in it has to be guessed."""

import hashlib
from pathlib import Path
from typing import Any

from uiat.config import encode
from uiat.export.subject import Subject
from uiat.runs.card import environment
from uiat.runs.weights import EXPORTED

KIND = "uiat export"
"""Tells a card of ours from any other card.json."""

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


def write_card(subject: Subject, folder: Path, files: list[str], requires: list[str]) -> dict[str, Any]:
    """Return the card of an export whose other files are in the folder already."""
    config, attack = subject.config, subject.config.validate.attack(subject.config.method)
    return {
        "schema": 1,
        "kind": KIND,
        "load": "from model import load; model = load()",
        "requires": requires,
        "files": files,
        "self_contained": "network.py" not in files,
        "network": {
            **encode(config.model),
            "parameters": sum(parameter.numel() for parameter in subject.model.parameters()),
            "input": {"shape": list(subject.spec.shape), "range": [0.0, 1.0], "dtype": "float32"},
            "output": {"shape": [subject.spec.num_classes], "meaning": "logits"},
        },
        "weights": {
            "file": EXPORTED,
            "sha256": hashlib.sha256((folder / EXPORTED).read_bytes()).hexdigest(),
            "from": subject.weights,
            **subject.epoch,
        },
        "data": {**subject.data, "options": encode(config.data)},
        "threat_model": {"norm": attack.norm, "eps": attack.eps},
        "evaluations": subject.evaluations,
        "method": encode(config.method),
        "training": {
            **encode(config.train),
            "seed": config.seed,
            "seconds": subject.result.get("training_seconds"),
            "passes": subject.result.get("training_passes"),
            "environment": subject.result.get("environment"),
            "finished": "training_seconds" in subject.result,
        },
        "exported_with": environment("cpu")["versions"],
        "citation": BIBTEX,
    }
