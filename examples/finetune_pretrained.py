"""Robust fine-tuning of a pretrained transformers network with UIAT, evaluated under attack before and after.

    python examples/finetune_pretrained.py [--epochs N] [--out FILE]

Nothing is downloaded: a small RegNet, naturally trained on digits, takes the place of `from_pretrained(...)`. The
steps are the same for any classifier: wrap it to return logits and to normalise its inputs, replace its head, and train
with UIAT.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import RegNetConfig, RegNetForImageClassification

from uiat import PGD, UIAT, Batch, Clock, DataSpec, Natural, Normalized, UniversalInverse, evaluate, indexed, logits_of

EPS = 0.2  # for pixels in [0, 1]; a suitable radius for 8×8 digits (8/255 is usual for CIFAR-10)
TRAIN = 1437
ROBUST = UIAT(lam=3.5, attack=PGD(eps=EPS, step=EPS / 4), inverse=UniversalInverse(eps=EPS / 2, step=EPS / 2))
DATA = DataSpec(num_classes=10, num_samples=TRAIN, shape=(1, 8, 8))


def fit(model: nn.Module, method: nn.Module, loader: DataLoader[tuple[Tensor, ...]], epochs: int, lr: float) -> None:
    """Train with any method of uiat: AdamW, one cycle, clipped gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * len(loader))
    for epoch in range(1, epochs + 1):
        model.train()
        for step, (index, x, y) in enumerate(loader):
            loss = method(model, Batch(x, y, index), Clock(epoch, step, epochs)).total
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()


def main(epochs: int = 6, seed: int = 0, out: Path | None = None) -> list[dict[str, float]]:
    """Return the accuracies before and after; write the weights to `out`."""
    torch.manual_seed(seed)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16).float().view(-1, 1, 8, 8), torch.tensor(labels)
    loader = DataLoader(indexed(TensorDataset(x[:TRAIN], y[:TRAIN])), batch_size=64, shuffle=True)

    def measure(name: str) -> dict[str, float]:
        result = evaluate(model, x[TRAIN:], y[TRAIN:], attacks=("natural", "pgd-20"), eps=EPS)
        accuracies = {str(attack): found.accuracy for attack, found in result.items()}
        print(name, *(f" {attack} {accuracy:.1%}" for attack, accuracy in accuracies.items()))
        return accuracies

    # In place of RegNetForImageClassification.from_pretrained(...):
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 16}
    inner = RegNetForImageClassification(RegNetConfig(num_channels=1, layer_type="x", num_labels=10, **sizes))
    # From pixels in [0, 1] to logits: resizing and normalisation are part of the model.
    model = nn.Sequential(nn.Upsample(scale_factor=2), Normalized(logits_of(inner), mean=[0.3], std=[0.4]))
    fit(model, Natural().build(DATA), loader, epochs, lr=0.02)
    found = [measure("pretrained")]
    inner.classifier[1] = nn.Linear(32, DATA.num_classes)  # a new head, as for custom classes
    fit(model, ROBUST.build(DATA), loader, epochs, lr=0.02)
    found.append(measure("fine-tuned"))
    if out:
        save_file(model.state_dict(), out)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Robust fine-tuning of a network of transformers, on digits.")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
