"""UIAT in a training loop with Hugging Face Accelerate, on one or several processes.

    python examples/accelerate_loop.py [--epochs N]
    accelerate launch --num_processes 2 examples/accelerate_loop.py

The loss is prepared, not the network: an attack calls the network many times before one backward, which
DistributedDataParallel does not support. On one process, `method(model, batch, clock)` is enough, as in plug_in.py.
"""

import argparse
from typing import Any

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from uiat import PGD, UIAT, Batch, Clock, DataSpec, LossOf, Normalized, UniversalInverse, evaluate, indexed

EPS = 0.2  # for pixels in [0, 1]; a suitable radius for 8×8 digits (8/255 is usual for CIFAR-10)
TRAIN = 1437


def network() -> nn.Module:
    """Return a custom classifier of normalised images, wrapped to normalise its inputs."""
    inner = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        nn.Sequential(nn.Conv2d(16, 32, 3, 2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
    )
    return Normalized(inner, mean=[0.3], std=[0.4])


def main(epochs: int = 8) -> dict[str, Any]:
    torch.manual_seed(0)
    accelerator = Accelerator()
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16).float().view(-1, 1, 8, 8), torch.tensor(labels)
    workers = accelerator.num_processes
    data = indexed(TensorDataset(x[:TRAIN], y[:TRAIN]))
    loader = DataLoader(data, batch_size=64 // workers, shuffle=True)
    model = network().to(accelerator.device)
    attack, inverse = PGD(eps=EPS, step=EPS / 4), UniversalInverse(eps=EPS / 2, step=EPS / 2)
    method = UIAT(lam=3.5, attack=attack, inverse=inverse).build(DataSpec(10, TRAIN, (1, 8, 8)))
    method.to(accelerator.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loss_of, optimizer, loader = accelerator.prepare(LossOf(model, method), optimizer, loader)

    for epoch in range(1, epochs + 1):
        model.train()
        for step, (index, x_batch, y_batch) in enumerate(loader):
            rows, clock = len(y_batch), Clock(epoch, step, epochs)
            # Position in the global batch: each process draws the random starts of its rows.
            batch = Batch(x_batch, y_batch, index, start=rows * accelerator.process_index, total=rows * workers)
            view = method.craft(model, batch, clock)
            method.prepare(model, [view], clock)
            accelerator.backward(loss_of(view, clock).total)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    result = evaluate(model, x[TRAIN:], y[TRAIN:], attacks=("natural", "pgd-20"), eps=EPS)
    accelerator.print("  ".join(f"{attack} {found.accuracy:.1%}" for attack, found in result.items()))
    accelerator.end_training()
    return result.to_dict()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="UIAT in a loop of Accelerate, on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=8)
    main(parser.parse_args().epochs)
