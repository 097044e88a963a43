"""Speed-up of evaluation by the folded channels_last network, and the number of predictions that differ.

    python benchmarks/evaluation.py [--rounds 7] [--batch 256] [--images 3000] [--threads 2] [--data-dir DIR] [--json F]

Both networks are interleaved in one process, so that other load slows both in the same way; the result is the median of
the rounds' ratios. The network is the naturally trained CIFAR-10 ResNet-18 of pyautoattack; predictions are compared on
CIFAR-10's test images if these are found, otherwise on noise.
"""

import importlib.util
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor, nn

from uiat import data
from uiat.errors import UserError
from uiat.io import write_json
from uiat.models import ResNet
from uiat.models.fast import speed_up, to_channels_last
from uiat.runs.result_card import environment
from uiat.runs.weights import load_weights
from uiat.types import DataSpec


def seconds(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Time one attack step: a forward and a backward to the input."""
    began = time.perf_counter()
    at = x.clone().requires_grad_()
    torch.autograd.grad(F.cross_entropy(model(at), y, reduction="sum"), at)
    return time.perf_counter() - began


def network() -> nn.Module:
    found = importlib.util.find_spec("pyautoattack")
    assert found is not None
    assert found.origin is not None
    model = ResNet().build(DataSpec(10, 1, (3, 32, 32)))
    load_weights(model, Path(found.origin).parent / "examples" / "model_test.pt")
    return model.eval().requires_grad_(False)


def find_images(data_dir: str | None, count: int) -> tuple[Tensor, str]:
    try:
        test = data.load_splits(data.DataConfig(name="cifar10", download=False), data_dir).test
    except UserError:
        return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(0)), "noise"
    return test.x[:count].float() / 255, "CIFAR-10 test images"


def main(
    rounds: int = 7,
    batch: int = 256,
    images: int = 3000,
    threads: int = 2,
    data_dir: str | None = None,
    json: Path | None = None,
) -> None:
    torch.set_num_threads(threads)
    plain = network()
    x, source = find_images(data_dir, images)
    folded = speed_up(to_channels_last(network()), x)
    assert folded.folds > 0
    fast = folded.crafting_network()
    part, y = x[:batch], torch.zeros(batch, dtype=torch.long)
    pairs = [(seconds(plain, part, y), seconds(fast, part, y)) for _ in range(rounds + 1)][1:]
    ratio = statistics.median(slow / quick for slow, quick in pairs)
    with torch.no_grad():
        logits = [torch.cat([net(part) for part in x.split(250)]) for net in (plain, fast)]
    differ = int((logits[0].argmax(1) != logits[1].argmax(1)).sum())
    gap = float((logits[0] - logits[1]).abs().max() / logits[0].abs().max())
    print(f"folded and channels_last: {ratio:.2f} times as fast (median of {rounds}, batch {batch})")
    print(f"{differ} of {len(x)} predictions differ on {source}; logits by at most {gap:.1e} of the largest")
    if json is not None:
        facts = {"ratio": ratio, "pairs": pairs, "batch": batch, "differ": differ, "images": len(x)}
        write_json(json, {**facts, "source": source, "logit_gap": gap, "environment": environment("cpu")})


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
