"""UIAT in a custom PyTorch training loop, with a custom network and DataLoader.

    python examples/plug_in.py [--epochs N]

The network is an ordinary `nn.Sequential`. The data set is scikit-learn's digits; `indexed` makes it yield
(index, x, y), because UIAT keeps a prediction for every training sample.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from uiat import PGD, UIAT, Batch, Clock, DataSpec, UniversalInverse, indexed

EPS = 0.2  # for pixels in [0, 1]; a suitable radius for 8×8 digits (8/255 is usual for CIFAR-10)
TRAIN = 1437


def network() -> nn.Module:
    """Return a custom classifier, from pixels in [0, 1] to logits."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        nn.Sequential(nn.Conv2d(16, 32, 3, 2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(32 * 4 * 4, 10)),
    )


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return float((model(x).argmax(1) == y).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="UIAT in a plain PyTorch loop, on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=12)
    epochs: int = parser.parse_args().epochs
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16).float().view(-1, 1, 8, 8), torch.tensor(labels)
    loader = DataLoader(indexed(TensorDataset(x[:TRAIN], y[:TRAIN])), batch_size=64, shuffle=True)
    x_test, y_test = x[TRAIN:], y[TRAIN:]
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    attack, inverse = PGD(eps=EPS, step=EPS / 4), UniversalInverse(eps=EPS / 2, step=EPS / 2)
    data = DataSpec(num_classes=10, num_samples=TRAIN, shape=(1, 8, 8))
    method = UIAT(lam=3.5, attack=attack, inverse=inverse).build(data)

    for epoch in range(1, epochs + 1):
        model.train()
        for step, (index, x_batch, y_batch) in enumerate(loader):
            loss = method(model, Batch(x_batch, y_batch, index), Clock(epoch, step, epochs)).total
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        x_adv = PGD(eps=EPS, step=None, steps=20)(model, x_test, y_test)
        natural, robust = accuracy(model, x_test, y_test), accuracy(model, x_adv, y_test)
        print(f"epoch {epoch}  natural {natural:.1%}  PGD-20 {robust:.1%}")


if __name__ == "__main__":
    main()
