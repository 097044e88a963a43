"""UIAT in a LightningModule, whose `training_step` computes the loss.

    python examples/lightning_module.py [--epochs N]

The method is a submodule, so that z and the table of p are in every checkpoint and move to the device with the
network. It needs images in [0, 1], the index of each sample, and a clock whose epochs count from 1.
"""

import argparse
from typing import Any

import torch
from lightning import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from uiat import PGD, UIAT, Batch, Clock, DataSpec, Normalized, UniversalInverse, evaluate, indexed

EPS = 0.2  # for pixels in [0, 1]; a suitable radius for 8×8 digits (8/255 is usual for CIFAR-10)
TRAIN = 1437


class RobustClassifier(LightningModule):
    """Trains a network with UIAT."""

    def __init__(self, model: nn.Module, data: DataSpec) -> None:
        super().__init__()
        attack, inverse = PGD(eps=EPS, step=EPS / 4), UniversalInverse(eps=EPS / 2, step=EPS / 2)
        self.model, self.method = model, UIAT(lam=3.5, attack=attack, inverse=inverse).build(data)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], step: int) -> Tensor:
        """Return the loss of one batch; log its terms and the robust training accuracy."""
        index, x, y = batch
        clock = Clock(self.current_epoch + 1, step, self.trainer.max_epochs or 1)
        loss = self.method(self.model, Batch(x, y, index), clock)
        self.log_dict({f"loss_{name}": value for name, value in loss.parts.items()})
        self.log("robust_accuracy", (loss.logits_adv.argmax(dim=1) == y).float().mean())
        return loss.total  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW for the parameters of the network."""
        return torch.optim.AdamW(self.model.parameters(), lr=0.01)


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
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16).float().view(-1, 1, 8, 8), torch.tensor(labels)
    loader = DataLoader(indexed(TensorDataset(x[:TRAIN], y[:TRAIN])), batch_size=64, shuffle=True)
    module = RobustClassifier(network(), DataSpec(num_classes=10, num_samples=TRAIN, shape=(1, 8, 8)))
    trainer = Trainer(max_epochs=epochs, gradient_clip_val=1.0, logger=False, enable_checkpointing=False)
    trainer.fit(module, loader)
    result = evaluate(module.model, x[TRAIN:], y[TRAIN:], attacks=("natural", "pgd-20"), eps=EPS)
    print("  ".join(f"{attack} {found.accuracy:.1%}" for attack, found in result.items()))
    return result.to_dict()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="UIAT in a LightningModule, on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=8)
    main(parser.parse_args().epochs)
