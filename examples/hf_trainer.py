"""UIAT with the Trainer of Hugging Face transformers, whose checkpoints contain z and the table of p.

    python examples/hf_trainer.py [--epochs N] [--out FOLDER] [--resume]

The Trainer trains a module with the network and the method: both are saved, resumed, and moved to the device. The
indices reach `compute_loss` because `remove_unused_columns` is off.
"""

import argparse
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from transformers import RegNetConfig, RegNetForImageClassification, Trainer, TrainingArguments, set_seed

from uiat import PGD, UIAT, Batch, Clock, DataSpec, Loss, Normalized, UniversalInverse, evaluate, indexed, logits_of

EPS = 0.2  # for pixels in [0, 1]; a suitable radius for 8×8 digits (8/255 is usual for CIFAR-10)
TRAIN = 1437


class RobustClassifier(nn.Module):
    """A network, and the method that trains it; its forward returns the loss of a batch."""

    def __init__(self, network: nn.Module, data: DataSpec) -> None:
        super().__init__()
        attack, inverse = PGD(eps=EPS, step=EPS / 4), UniversalInverse(eps=EPS / 2, step=EPS / 2)
        self.network, self.method = network, UIAT(lam=3.5, attack=attack, inverse=inverse).build(data)

    def forward(self, batch: Batch, clock: Clock) -> Loss:
        """Return the loss."""
        return self.method(self.network, batch, clock)  # type: ignore[no-any-return]


class RobustTrainer(Trainer):  # type: ignore[misc]
    """A Trainer whose steps have a clock, computed from the number of steps so far."""

    def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        """Return the loss of one batch."""
        epochs = self.state.num_train_epochs
        epoch, step = divmod(self.state.global_step, self.state.max_steps // epochs)
        batch = Batch(inputs["image"], inputs["labels"], inputs["index"])
        return model(batch, Clock(epoch + 1, step, epochs)).total  # type: ignore[no-any-return]


def network() -> nn.Module:
    """Return a classifier of transformers for pixels in [0, 1], in place of one of `from_pretrained`."""
    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 16}
    inner = RegNetForImageClassification(RegNetConfig(num_channels=1, layer_type="x", num_labels=10, **sizes))
    return nn.Sequential(nn.Upsample(scale_factor=2), Normalized(logits_of(inner), mean=[0.3], std=[0.4]))


def main(epochs: int = 6, out: str = "runs/hf-trainer", resume: bool = False) -> RobustClassifier:
    set_seed(0)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16).float().view(-1, 1, 8, 8), torch.tensor(labels)
    rows = [{"image": x[k], "label": int(y[k])} for k in range(TRAIN)]  # as a data set of Hugging Face
    model = RobustClassifier(network(), DataSpec(num_classes=10, num_samples=TRAIN, shape=(1, 8, 8)))
    arguments = TrainingArguments(
        out,
        num_train_epochs=epochs,
        per_device_train_batch_size=64,
        learning_rate=0.02,
        remove_unused_columns=False,  # else the indices are dropped
        save_strategy="epoch",
        logging_strategy="epoch",
        report_to="none",
        dataloader_pin_memory=False,
    )
    RobustTrainer(model, arguments, train_dataset=indexed(rows)).train(resume_from_checkpoint=resume)
    result = evaluate(model.network, x[TRAIN:], y[TRAIN:], attacks=("natural", "pgd-20"), eps=EPS)
    print("  ".join(f"{attack} {found.accuracy:.1%}" for attack, found in result.items()))
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="UIAT with the Trainer of transformers, on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", default="runs/hf-trainer")
    parser.add_argument("--resume", action="store_true")
    main(**vars(parser.parse_args()))
