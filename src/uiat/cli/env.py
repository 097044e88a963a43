"""`uiat env`: versions, CPU, GPUs and commit of an installation, to paste into a bug report.

It needs no optional package, so that it runs wherever another command does not.
"""

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from uiat.errors import UserError
from uiat.progress import print_result
from uiat.runs.result_card import environment, package_version

JSON_FLAG = "--json"
ENV_USAGE = f"""usage: uiat env [{JSON_FLAG}]

Print versions, CPU, GPUs and git commit, to paste into a bug report; with {JSON_FLAG} as JSON."""
OPTIONAL = (
    *("pyautoattack", "tyro", "scikit-learn", "scipy", "matplotlib", "pooch", "requests", "tqdm", "pillow", "jinja2"),
    *("huggingface_hub", "onnx", "tensorboard", "submitit", "timm", "transformers", "lightning", "accelerate"),
)
"""Packages of the extras for users."""
CPU_INFO = Path("/proc/cpuinfo")


def main(args: list[str]) -> int:
    """Run the command."""
    if {"-h", "--help"} & set(args):
        print(ENV_USAGE)
        return 0
    if unknown := [word for word in args if word != JSON_FLAG]:
        raise UserError(f"uiat env takes {JSON_FLAG} alone; got {' '.join(unknown)!r}.")
    found = describe_environment()
    if args:
        text = json.dumps(found, indent=1, ensure_ascii=False)
    else:
        text = "\n".join(f"{name + ':':<15}{_written(value)}" for name, value in found.items())
    print_result(text)
    return 0


def describe_environment() -> dict[str, Any]:
    """Return the environment that result cards record, with optional packages (`None`: missing), CPU and GPUs."""
    card = environment("cpu")
    return {
        "versions": card["versions"],
        "optional": {name: package_version(name) for name in OPTIONAL},
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": card["threads"],
        "kernels": card["kernels"],
        "gpus": [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())],
        "cuda": torch.version.cuda,
        "git_commit": card["git_commit"],
    }


def _cpu() -> str:
    """Return the model of the CPU; its architecture where the system names no model."""
    lines = CPU_INFO.read_text(encoding="utf-8").splitlines() if CPU_INFO.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version or '(missing)'}" for name, version in value.items())
    return (", ".join(value) if isinstance(value, list) else str(value or "")) or "none"
