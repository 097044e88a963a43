"""The base class of method configurations, and the module that computes a method's loss."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from uiat.attacks import FGSM, Attack
from uiat.crafting import Crafting, crafting
from uiat.errors import UserError
from uiat.methods.loop_check import LoopCheck
from uiat.objectives.terms import Weighted
from uiat.rng import Draws
from uiat.targets import InstanceInverse, OneOff, Target, UniversalInverse
from uiat.types import Batch, Clock, DataSpec, Loss, View, check_logits

CHECK_EVERY = 100
"""Steps between two checks of a batch on a GPU, where a check makes the host wait; on a CPU every batch is checked."""

SUM_TOLERANCE = 1e-2
"""Tolerance of the sum of a soft label: that of half precision."""


class MethodConfig(ABC):
    """Base class of method configurations: frozen dataclasses of hyper-parameters that build the method.

    Subclasses must define `build`. The attributes below are used by the commands; a field or property of the same name
    overrides the default.
    """

    attack: Attack | None = None
    """The attack that generates x̂; `None`: there is no x̂."""
    inverse: InstanceInverse | UniversalInverse | None = None
    """The inverse attack, which `uiat inverse` uses too; `None`: there are no inverse adversarial examples."""
    one_off: OneOff | None = None
    """The single epoch T' with inverse adversarial examples; `None`: all epochs are treated the same."""
    selectable_from: float = 1.0
    """The first epoch, or fraction of the run, that may be selected as the best."""
    crafting: Crafting = "eval"
    """BatchNorm while crafting."""
    needs_helper: bool = False
    """Whether `build` needs a naturally trained network: `helper`, or one that is trained first."""
    helper: str = ""
    """A run folder or a weights file; empty: the helper is trained first, for `helper_epochs`."""
    helper_epochs: int | None = None
    """Epochs of a helper that is trained first; `None`: as many as the run has."""

    @abstractmethod
    def build(self, data: DataSpec, *, seed: int = 0, helper: nn.Module | None = None) -> "Method":
        """Return the method for this data; `helper` is the naturally trained network, if the method needs one."""

    def compose(
        self, data: DataSpec, seed: int, terms: Sequence[Weighted], target: Target | None = None, **options: Any
    ) -> "Method":
        """Return the method of this configuration's attack with a target and loss terms."""
        return Method(
            data, attack=self.attack, terms=terms, target=target, crafting=self.crafting, seed=seed, **options
        )


class Method(nn.Module):
    """Computes a training loss: `method(model, Batch(x, y, index), Clock(epoch, step, epochs)).total.backward()`.

    Its state (z, the table of p) is in `state_dict`; a helper (HAT) is a submodule whose weights are not. The mode of
    the model and `requires_grad` of its parameters are preserved; the loss is computed in that mode, so call
    `model.train()` first.

    With gradient accumulation, call `craft` for each micro-batch, `prepare` once for all of them, then `loss` for each.
    """

    def __init__(
        self,
        data: DataSpec,
        *,
        attack: Attack | None,
        terms: Sequence[Weighted],
        target: Target | None = None,
        crafting: Crafting = "eval",
        seed: int = 0,
        keep_gradient: bool = False,
        helper: nn.Module | None = None,
    ):
        super().__init__()
        self.helper = None if helper is None else helper.eval()
        self.register_state_dict_post_hook(_remove_helper)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_ignore_missing_helper)  # type: ignore[no-untyped-call]
        self.data, self.attack, self.target, self.terms = data, attack, target, tuple(terms)
        self.crafting: Crafting = crafting
        self.seed = seed
        self.keep_gradient = keep_gradient
        parts = [attack, *(target.modules() if target else ()), *(term.term for term in terms)]
        self.needs_classes: str = next((why for part in parts if (why := getattr(part, "needs_classes", ""))), "")
        """Why labels must be classes; empty: they may be soft, a probability for each class."""
        self._checked = False
        self._loop_check = LoopCheck()

    @property
    def remembers(self) -> bool:
        """Whether a prediction is kept for every sample, so that batches need sample indices."""
        return self.target is not None and self.target.remembers

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the target; a helper stays in eval mode."""
        super().train(mode)
        if self.helper is not None:
            self.helper.eval()
        return self

    def forward(self, model: nn.Module, batch: Batch, clock: Clock) -> Loss:
        """Return the loss of one batch."""
        self._loop_check(model, batch, clock)
        view = self.craft(model, batch, clock)
        self.prepare(model, [view], clock)
        return self.loss(view, clock)

    def craft(self, model: nn.Module, batch: Batch, clock: Clock) -> View:
        """Generate the adversarial examples x̂ of a (micro-)batch."""
        first = not self._checked
        batch = replace(batch, x=batch.x.detach()) if batch.x.requires_grad else batch
        if first or batch.x.device.type == "cpu" or clock.step % CHECK_EVERY == 0:
            self._check(batch)
        if batch.has_soft_labels:  # logits are in at least float32, and so must be what they are compared with
            batch = replace(batch, y=batch.y.to(torch.promote_types(batch.x.dtype, torch.float32)))
        draws = Draws(self.seed, clock.epoch, clock.step, batch.start, batch.total)
        x_adv, gradient = batch.x, None
        if self.attack is not None:
            with crafting(model, self.crafting) as network, self._watched(network) if first else nullcontext():
                if self.keep_gradient:
                    assert isinstance(self.attack, FGSM)
                    x_adv, gradient = self.attack.with_gradient(network, batch.x, batch.y)
                else:
                    x_adv = self.attack(network, batch.x, batch.y, draws)
        self._checked = True
        return View(model, batch, x_adv, draws, self.crafting, gradient, classes=self.data.num_classes)

    def prepare(self, model: nn.Module, views: Sequence[View], clock: Clock) -> None:
        """Prepare the target, once for all micro-batches of a batch and before p is computed: update z."""
        if self.target is not None:
            self.target.prepare(model, views, clock)

    def loss(self, view: View, clock: Clock) -> Loss:
        """Compute p, then the terms, in this order: each forward updates BatchNorm's running statistics.

        A view that already has its p keeps it.
        """
        if self.target is not None and view.log_p is None:
            view.log_p = self.target(view, clock)
        parts = {term.name: term.term(view) for term in self.terms}
        weighted = [term.weight * parts[term.name] for term in self.terms]
        total, values = torch.stack(weighted).sum(), {name: value.detach() for name, value in parts.items()}
        if self.attack is None:
            return Loss(total, values)
        logits_adv = vars(view).get("adversarial")  # cached, if a term has computed it: reading it costs no forward
        return Loss(total, values, view.x_adv.detach(), None if logits_adv is None else logits_adv.detach())

    @contextmanager
    def _watched(self, network: nn.Module) -> Iterator[None]:
        """Check each output of the network to be logits before a loss is computed from it."""

        def check(_: nn.Module, args: tuple[Tensor, ...], output: object) -> None:
            if args:
                check_logits(output, len(args[0]), self.data.num_classes)

        with network.register_forward_hook(check):
            yield

    def _check(self, batch: Batch) -> None:
        """Raise a `UserError` that says what is wrong with a batch, if anything is."""
        x, y, index = batch.x, batch.y, batch.index
        if x.shape[1:] != self.data.shape:
            raise UserError(
                f"a sample has shape {tuple(x.shape[1:])}, but DataSpec says {self.data.shape}: make them agree."
            )
        if not len(x):
            raise UserError("the batch has no samples: skip it.")
        if not _within(x, 0, 1):
            raise UserError(
                "pixels lie outside [0, 1] or are NaN: give images in [0, 1] and put normalisation inside the model "
                "(uiat.Normalized)."
            )
        self._check_labels(y, len(x))
        if self.remembers and index is None:
            raise UserError(
                "this method keeps a prediction for every sample, but the batch has no sample indices: "
                "give Batch(x, y, index), with the indices that uiat.indexed(dataset) gives, or disable momentum "
                "(momentum=Momentum(enabled=False))."
            )
        if index is not None and (index.shape != x.shape[:1] or index.dtype not in (torch.int64, torch.int32)):
            raise UserError(
                f"sample indices are {index.dtype} of shape {tuple(index.shape)} for {len(x)} samples: "
                "give one int64 index per sample."
            )
        if index is not None and not _within(index, 0, self.data.num_samples - 1):
            raise UserError(f"a sample index lies outside 0 … {self.data.num_samples - 1}: check DataSpec.num_samples.")

    def _check_labels(self, y: Tensor, samples: int) -> None:
        """Raise a `UserError` if labels are neither classes nor, where the method allows it, probabilities."""
        classes, given = self.data.num_classes, f"labels are {y.dtype} of shape {tuple(y.shape)} for {samples} samples"
        if y.shape == (samples,) and y.dtype == torch.int64:
            if not _within(y, 0, classes - 1):
                raise UserError(f"a label lies outside 0 … {classes - 1}: check the labels, or DataSpec.num_classes.")
        elif y.shape != (samples, classes) or not y.is_floating_point():
            raise UserError(
                f"{given}: give one int64 label per sample, or soft labels, a probability for each of {classes} "
                f"classes, as floats of shape ({samples}, {classes})."
            )
        elif self.needs_classes:
            raise UserError(
                f"{given}, which are soft, but this method needs one int64 label per sample, because "
                f"{self.needs_classes}: disable MixUp or CutMix, use the method's label_smoothing in place of smoothed "
                "labels, or choose a method that takes soft labels, such as IAT or TRADES."
            )
        elif not _within(y, 0, 1) or not _within(y.float().sum(dim=1), 1 - SUM_TOLERANCE, 1 + SUM_TOLERANCE):
            raise UserError("soft labels are not probabilities: give values in [0, 1] that sum to 1 for each sample.")


class LossOf(nn.Module):
    """Computes a method's loss in a single forward, so that DistributedDataParallel can wrap it.

    Wrap this module, not the network: DistributedDataParallel expects one backward for each forward of what it wraps,
    but an attack calls the network many times. The method is not a submodule, so that its state is not broadcast.

    >>> method, clock = UIAT().build(data), Clock(epoch=1, step=0, epochs=30)
    >>> loss_of = LossOf(model, method)  # wrap this with DistributedDataParallel or Accelerate
    >>> view = method.craft(model, batch, clock)
    >>> method.prepare(model, [view], clock)
    >>> loss_of(view, clock).total.backward()
    """

    def __init__(self, model: nn.Module, method: Method):
        super().__init__()
        self.model = model
        self._method = (method,)

    def forward(self, view: View, clock: Clock) -> Loss:
        """Return the loss of a (micro-)batch."""
        return self._method[0].loss(view, clock)


def _remove_helper(_method: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    """Keep the helper, which is never trained, out of the state dict."""
    for name in [name for name in state if name.startswith(f"{prefix}helper.")]:
        del state[name]


def _ignore_missing_helper(method: nn.Module, incompatible: Any) -> None:
    """Accept a state dict without the helper, also in the state dict of a module around the method."""
    if isinstance(method.helper, nn.Module):
        names = tuple(f"helper.{name}" for name in method.helper.state_dict())
        missing = incompatible.missing_keys
        missing[:] = [name for name in missing if not name.endswith(names)]


def _within(values: Tensor, low: float, high: float) -> bool:
    least, most = values.aminmax()  # NaN if there is any
    return bool((least >= low) & (most <= high))
