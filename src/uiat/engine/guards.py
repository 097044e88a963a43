"""Detection and handling of steps with a loss or gradient that is not finite."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uiat.crafting import crafting
from uiat.data.files import some
from uiat.distributed import all_reduce_sum, gather, is_main, wait
from uiat.engine.state import State
from uiat.errors import Resumable, quoted
from uiat.io import write_tensors
from uiat.types import Clock, Loss, View

MOST_SKIPPED = 0.1
"""Share of an epoch's steps that may be skipped; with more, and at least `FEW_SKIPPED`, the run stops."""
FEW_SKIPPED = 3
NAMED_SAMPLES = 8
"""Samples listed in the error message; the saved batch has all of them."""


@dataclass(frozen=True)
class Fault:
    """What was not finite in a step, and its batch."""

    what: str
    clock: Clock
    views: Sequence[View]


@torch.no_grad()
def find_fault(
    model: nn.Module, losses: Sequence[Loss], views: Sequence[View], clock: Clock, *, gradients: bool = True
) -> Fault | None:
    """Return what is not finite after a backward, in any process; this synchronises the host with the device once."""
    values, tensors = list(_values(losses)), list(_tensors(model, gradients))
    norms = torch._foreach_norm([tensor for _, tensor in tensors]) if tensors else ()
    screen = torch.stack([*(value for _, value in values), *norms]).isfinite().all()
    if not bool(all_reduce_sum(1.0 - screen.float())):
        return None
    # A norm may overflow although every entry is finite: check the entries.
    named = [*values, *tensors]
    flags = ~torch.stack([tensor.isfinite().all() for _, tensor in named])
    counts = all_reduce_sum(flags.float()).tolist()
    what = next((name for (name, _), count in zip(named, counts, strict=True) if count), None)
    return None if what is None else Fault(what, clock, views)


def _values(losses: Sequence[Loss]) -> Iterator[tuple[str, Tensor]]:
    """Yield the parts before the total: they are more informative."""
    for loss in losses:
        for name, part in loss.parts.items():
            yield f"the part {name!r} of the loss", part
    for loss in losses:
        yield "the loss", loss.total


def _tensors(model: nn.Module, gradients: bool) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in model.named_parameters():
        if gradients and parameter.grad is not None:
            yield f"the gradient of {name!r}", parameter.grad
    # An overflow in BatchNorm's variance is invisible in training mode: the layer returns a constant.
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_var is not None:
            yield f"the running variance of {name!r}", module.running_var


def respond(fault: Fault, state: State, steps: int, folder: Path, *, skip: bool) -> None:
    """Count a skipped step, or stop the run: at once, or when too many of the epoch's `steps` are skipped.

    All processes take part. Only the batch is saved: the last checkpoint remains the last good one.
    """
    clock = fault.clock
    if not skip:
        samples, file = _save(fault, folder)
        raise Resumable(
            f"{fault.what} is not finite in epoch {clock.epoch}, step {clock.step + 1} ({samples}), and the weights "
            f"were not updated: inspect the batch in {file}, lower --train.schedule.lr, "
            f"or skip such batches with `uiat train --resume {quoted(folder)} --on-nonfinite skip`."
        )
    state.skipped += 1
    if state.skipped > MOST_SKIPPED * steps and (state.skipped >= FEW_SKIPPED or state.skipped == steps):
        samples, file = _save(fault, folder)
        raise Resumable(
            f"{state.skipped} of the {steps} steps of epoch {clock.epoch} were not finite, too many to skip; in "
            f"the last, step {clock.step + 1}, it was {fault.what} ({samples}): inspect its batch in {file}, "
            "or lower --train.schedule.lr."
        )


def _save(fault: Fault, folder: Path) -> tuple[str, Path]:
    """Write the batch of all processes; return a list of its offending samples for a message, and the file."""
    batch = {name: gather(column) for name, column in _columns(fault.views).items()}
    offending = gather(_offending(fault.views).long()).bool()
    if not offending.any():
        offending[:] = True  # no single sample is at fault
    file = folder / f"nonfinite-{fault.clock.epoch}-{fault.clock.step + 1}.safetensors"
    facts = {"what": fault.what, "epoch": str(fault.clock.epoch), "step": str(fault.clock.step + 1)}
    try:
        if is_main():
            write_tensors(file, {**batch, "offending": offending}, facts)
    finally:
        wait()  # a process that exits may end the others
    samples = [str(sample) for sample in batch["index"][offending].tolist()]
    return f"training samples {some(samples, NAMED_SAMPLES)}", file


def _columns(views: Sequence[View]) -> dict[str, Tensor]:
    """Return the columns of the saved batch, without padding rows."""
    rows: dict[str, list[Tensor]] = {"x": [], "y": [], "index": [], "x_adv": []}
    for view in views:
        batch, kept = view.batch, slice(view.batch.count)
        places = torch.arange(batch.start, batch.start + len(batch), device=batch.y.device)
        rows["x"].append(batch.x[kept])
        rows["y"].append(batch.y[kept])
        rows["index"].append((places if batch.index is None else batch.index)[kept])
        if view.x_adv is not batch.x:
            rows["x_adv"].append(view.x_adv[kept])
    return {name: torch.cat(parts) for name, parts in rows.items() if parts}


@torch.no_grad()
def _offending(views: Sequence[View]) -> Tensor:
    """Return which samples have a loss that is not finite on their own: in `eval` mode no sample sees another."""
    model = views[0].model
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            for buffer in module.buffers(recurse=False):
                buffer.nan_to_num_(1.0, 1.0, 1.0)  # the step may have spoilt them; the run ends here
    rows = []
    with crafting(model, "eval"):
        for view in views:
            # x first: where x itself fails, x̂ may have been spoilt for the whole batch.
            for x in (view.batch.x, view.x_adv):
                bad = ~F.cross_entropy(model(x), view.batch.y, reduction="none").isfinite()
                if bad.any():
                    break
            rows.append(bad[: view.batch.count])
    return torch.cat(rows)
