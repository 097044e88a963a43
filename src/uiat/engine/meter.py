"""Running means of an epoch, kept on the device until somebody asks."""

from torch import Tensor

from uiat.types import Loss


class Meter:
    """Sums of loss, terms and right answers over the samples of an epoch, without a synchronisation a step."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.samples = 0

    def add(self, loss: Loss, correct: Tensor, samples: int) -> None:
        """Count one micro-batch: its mean loss and terms, and how many of its x̂ were classified right."""
        values = {"loss": loss.total.detach() * samples, "train_accuracy": correct}
        values |= {f"loss_{name}": part * samples for name, part in loss.parts.items()}
        for name, value in values.items():
            before = self.sums.get(name)
            self.sums[name] = value.double() if before is None else before.to(value.device) + value.double()
        self.samples += samples

    def means(self) -> dict[str, float]:
        """Return the means so far."""
        return {name: float(total) / max(1, self.samples) for name, total in self.sums.items()}

    def state_dict(self) -> dict[str, object]:
        """Return all there is to go on from."""
        return {"sums": self.sums, "samples": self.samples}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on from a saved state."""
        self.sums, self.samples = dict(state["sums"]), int(state["samples"])  # type: ignore[call-overload]
