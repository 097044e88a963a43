"""Table of the last target distribution p of each training sample."""

from typing import Literal

import torch
from torch import Tensor, nn

from uiat.distributed import gather
from uiat.errors import UserError
from uiat.types import DataSpec, View

TablePrecision = Literal["float32", "float16"]
"""Data type of the table: 4 or 2 bytes per number."""


class PredictionTable(nn.Module):
    """log p of each training sample (samples × classes), and a mask of the samples that have one."""

    log_p: Tensor
    """Stored log-probabilities: (samples, classes); rows of samples not seen yet are meaningless."""
    seen: Tensor
    """Whether a sample has a stored distribution: (samples,) of bool."""

    def __init__(self, data: DataSpec, precision: TablePrecision = "float32"):
        super().__init__()
        dtype = torch.float16 if precision == "float16" else torch.float32
        self.register_buffer("log_p", torch.zeros(data.num_samples, data.num_classes, dtype=dtype))
        self.register_buffer("seen", torch.zeros(data.num_samples, dtype=torch.bool))
        self.version = 0
        """Number of writes; a checkpoint saves the table only if it has changed."""

    def recall(self, view: View) -> tuple[Tensor, Tensor]:
        """Return the stored log p of the view's samples, and a (batch, 1) mask of those that have one."""
        index = _index(view)
        log_p = self.log_p[index]
        if log_p.dtype == torch.float16:  # after rounding, probabilities do not quite sum to 1
            log_p = log_p.float().log_softmax(dim=1)
        return log_p, self.seen[index, None]

    def store(self, view: View, log_p: Tensor) -> None:
        """Store log p for the samples of the view, in every process: another one may have them in the next epoch."""
        index = gather(_index(view)[: view.batch.count])
        # A probability too small for half precision counts as 0, but its logarithm must stay finite.
        kept = log_p.detach()[: view.batch.count].clamp(min=torch.finfo(self.log_p.dtype).min)
        self.log_p[index] = gather(kept.to(self.log_p.dtype))
        self.seen[index] = True
        self.version += 1


def _index(view: View) -> Tensor:
    if view.batch.index is None:
        raise UserError(
            "this target keeps a prediction for every sample, but the batch has no sample indices: "
            "give Batch(x, y, index), or disable momentum (momentum=Momentum(enabled=False))."
        )
    return view.batch.index
