"""Running means of an epoch, kept on the device until somebody asks."""

from typing import Any

import torch
from torch import Tensor

from uiat.distributed import is_main, total
from uiat.types import Loss


class Meter:
    """Sums of loss, terms and right answers over the samples of an epoch, without a synchronisation a step."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.samples = 0

    def add(self, loss: Loss, correct: Tensor, samples: int) -> None:
        """Count one micro-batch: its mean loss and terms, and how many of its x̂ were classified right."""
        values = {"loss": loss.total.detach() * samples, "train_accuracy": correct if samples else correct * 0}
        values |= {f"loss_{name}": part * samples for name, part in loss.parts.items()}
        for name, value in values.items():
            before = self.sums.get(name)
            self.sums[name] = value.double() if before is None else before.to(value.device) + value.double()
        self.samples += samples

    def means(self) -> dict[str, float]:
        """Return the means so far, over all processes."""
        sums, samples = self._everywhere()
        return {name: float(total) / max(1, samples) for name, total in sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return all there is to go on from, of all processes."""
        sums, samples = self._everywhere()
        return {"sums": sums, "samples": samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; the main process holds what all had counted."""
        self.sums, self.samples = dict(state["sums"]), int(state["samples"])
        if not is_main():
            self.sums, self.samples = {name: value * 0 for name, value in self.sums.items()}, 0

    def _everywhere(self) -> tuple[dict[str, Tensor], int]:
        if not self.sums:
            return {}, 0
        device = next(iter(self.sums.values())).device
        both = total(torch.stack([*self.sums.values(), torch.tensor(float(self.samples)).double().to(device)]))
        return dict(zip(self.sums, both[:-1], strict=True)), int(both[-1])
