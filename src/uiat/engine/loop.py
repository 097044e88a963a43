"""The training loop."""

import json
import time
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch

from uiat.attacks import PGD
from uiat.config import AnyConfig
from uiat.data import Splits
from uiat.data.loader import prefetch
from uiat.distributed import any_rank, is_main
from uiat.engine.callbacks import Callback, LogEvent, make_pictures
from uiat.engine.guards import respond
from uiat.engine.overfitting import is_single_step, one_step
from uiat.engine.setup import (
    build_loader,
    build_state,
    cudnn_benchmark,
    folded_copy_is_valid,
    get_helper,
    given_helper,
    initial_model,
    keep_initial,
    small_share,
)
from uiat.engine.signals import StopSignal
from uiat.engine.state import State
from uiat.engine.step import train_step
from uiat.evaluation.suite import accuracy
from uiat.io import append, write_tensors
from uiat.models.fast import keeps_channels_last
from uiat.models.probe import try_network
from uiat.progress import Reporter
from uiat.rng import derive
from uiat.runs.checkpoint import Checkpointer
from uiat.runs.provenance import Provenance
from uiat.runs.result_card import reopen_card, training_card, write_training_card
from uiat.runs.run_folder import RunFolder
from uiat.types import Clock


def dry_build(config: AnyConfig, splits: Splits, device: torch.device) -> None:
    """Build the parts of a run, try the network, and discard them: mistakes show before a run folder is created."""
    build_loader(config, splits.train, torch.device("cpu"), splits.generated)
    try_network(initial_model(config, splits.spec).to(device), config.model, splits.spec)
    if config.method.needs_helper and config.method.helper:
        given_helper(config, config.method, splits.spec, device)


def train(
    config: AnyConfig,
    run: RunFolder,
    splits: Splits,
    device: torch.device,
    callback: Callback | None = None,
    stop: StopSignal | None = None,
) -> bool:
    """Train in a run folder, or resume its training. Return whether the run is finished (not stopped by a signal).

    `callback` is called with every line of metrics.jsonl: after some steps, and at the end of each epoch before its
    checkpoint is saved. It is called in each process that has one, and again for steps repeated after a kill. `stop` is
    the caller's `StopSignal`, already entered.
    """
    lock, stopping = run.lock() if is_main() else nullcontext(), nullcontext(stop) if stop else StopSignal()
    with lock, stopping as signal:
        return _train(config, run, splits, device, callback, signal)


def _train(
    config: AnyConfig,
    run: RunFolder,
    splits: Splits,
    device: torch.device,
    callback: Callback | None,
    stop: StopSignal,
) -> bool:
    plan = config.train
    initial = keep_initial(config, run, splits.spec)
    helper_is_ready, helper = get_helper(
        config, run, splits.spec, device, lambda c, r: train(c, r, splits, device, stop=stop)
    )
    if not helper_is_ready:
        return False
    checkpoints = Checkpointer(run, Provenance.of(run, config, splits, device, helper) if is_main() else None)
    state = build_state(config, splits.spec, device, helper, initial)
    resumed = checkpoints.load(state, device)
    loader = build_loader(config, splits.train, device, splits.generated)
    steps = loader.steps_per_epoch
    done = (state.epoch - 1) * steps + state.step
    if is_main():
        reopen_card(run, plan.epochs)
    began = saved = time.monotonic() - state.seconds

    def save() -> None:
        nonlocal saved
        saved = time.monotonic()
        state.seconds = saved - began
        checkpoints.save(state)

    def log(record: dict[str, Any], at: int) -> None:
        append_metrics(run, record)
        if callback is not None:
            callback(LogEvent(record, at, state, lambda: make_pictures(config, splits, state)))

    with closing(state.parallel), Reporter(run.log, plan.epochs, steps, done) as report:
        if resumed and state.epoch <= plan.epochs:
            report.say(f"resuming at epoch {state.epoch}, after step {state.step} of {steps}")
        if plan.fast and not resumed and state.attacks_unfolded:
            report.say("attacks run through the unmodified network: no BatchNorm in it can be folded")
        if plan.in_channels_last and not resumed and not keeps_channels_last(state.model):
            report.say("the network keeps its memory format: it cannot be trained in channels_last")
        if not resumed and (share := small_share(state.model, plan.batch_size)) is not None:
            advice = "use fewer processes, or a larger --train.batch-size"
            report.say(f"each process has {share} images of a batch, which gives BatchNorm noisy statistics: {advice}")
        while state.epoch <= plan.epochs:
            for step, batch in prefetch(loader.epoch(state.epoch, start=state.step)):
                now = (state.epoch - 1) * steps + step
                clock = Clock(state.epoch, step, plan.epochs)
                lr = plan.schedule.at(now, plan.epochs * steps)
                skip = plan.on_nonfinite == "skip"
                momentum = plan.schedule.momentum_at(now, plan.epochs * steps, plan.momentum)
                with cudnn_benchmark(device):  # all batches but the last of an epoch have one shape
                    fault = train_step(
                        state,
                        batch,
                        clock,
                        lr=lr,
                        momentum=momentum,
                        micro_batch=plan.micro_batch,
                        undo=skip,
                        awp=plan.awp,
                    )
                if fault is not None:
                    respond(fault, state, steps, run.path, skip=skip)
                state.step = step + 1
                log_now = plan.log_every > 0 and (now + 1) % plan.log_every == 0
                means = state.meter.means() if log_now else None
                if means is not None:
                    log({"kind": "step", "epoch": state.epoch, "step": step + 1, "lr": lr, **means}, now + 1)
                report.step(state.epoch, step, means)
                late = is_main() and time.monotonic() - saved > 60 * plan.checkpoint_minutes
                stopping, saving = any_rank(stop.requested, late)
                if stopping:
                    save()
                    report.say(f"stopped in epoch {state.epoch} after step {step + 1}; all is saved in {run.path}")
                    return False
                if saving:
                    save()
            if not folded_copy_is_valid(state, splits.spec):
                report.say("attacks now run through the unmodified network: its folded copy no longer follows it")
            record = _validate(config, state, splits, device)
            # the first selectable epoch is not compared with earlier ones
            better = record[f"val_{plan.select}"] > state.best.get(f"val_{plan.select}", -1.0) or (
                state.epoch == Clock(state.epoch, 0, plan.epochs).epoch_at(config.method.selectable_from)
            )
            if is_main():
                run.check_held()
            if better:
                state.best = {name: record[name] for name in ("epoch", "val_natural", "val_robust")}
                _keep(run.best, run.best_averaged, state)
            _keep(run.last, run.last_averaged, state)
            _warn(record, state, steps, report)
            seconds = round(time.monotonic() - began, 3)
            log({"kind": "epoch", **record, "seconds": seconds}, state.epoch * steps)
            report.epoch(record, better)
            state.epoch, state.step, state.skipped, state.meter = state.epoch + 1, 0, 0, type(state.meter)()
            save()
        facts = {
            "parameters": sum(p.numel() for p in state.model.parameters()),
            "best": state.best,
            **({"catastrophic_overfitting": state.overfitting.first} if state.overfitting.first else {}),
            "training_seconds": round(state.seconds, 1),
            "training_passes": state.passes.everywhere(),
        }
        if checkpoints.provenance is not None:
            changes = checkpoints.provenance.resumed
            facts |= {"resumed": changes} if changes else {}
            write_training_card(run, training_card(config, splits, device, **facts))
    return True


def _validate(config: AnyConfig, state: State, splits: Splits, device: torch.device) -> dict[str, Any]:
    """Return the epoch's record: means over the training batches, and accuracies on the validation split.

    With averaged weights, the accuracies are those of the averaged network; those of the raw one are `raw_val_…`.
    """
    record: dict[str, Any] = {"epoch": state.epoch, **state.meter.means()}
    if config.train.on_nonfinite == "skip":
        record["skipped"] = state.skipped
    with state.passes.paused():  # the cost of a run is that of its training
        accuracies = _accuracies(config, state, splits, device)
        if state.average is not None:
            raw = {f"raw_{name}": value for name, value in accuracies.items()}
            with state.average.swapped_in(state.model):
                accuracies = {**_accuracies(config, state, splits, device), **raw}
    return {**record, **accuracies}


def _accuracies(config: AnyConfig, state: State, splits: Splits, device: torch.device) -> dict[str, float]:
    """Evaluate the network with its current weights on the validation split."""
    attack = config.validate.attack(config.method)
    attacks: dict[str, PGD | None] = {"val_natural": None, "val_robust": attack}
    if is_single_step(config.method):
        attacks["val_fgsm"] = one_step(attack)
    seed, size = derive(config.seed, "validation"), config.validate.batch_size
    return {
        name: accuracy(state.network, splits.validation, attacker, batch_size=size, seed=seed, device=device).accuracy
        for name, attacker in attacks.items()
    }


def _warn(record: dict[str, Any], state: State, steps: int, report: Reporter) -> None:
    """Report problems of an epoch that do not end the run."""
    if state.skipped:
        report.say(f"epoch {state.epoch}: {state.skipped} of {steps} steps skipped, their loss or gradient not finite")
    if "val_fgsm" not in record:
        return
    robust, fgsm, watch = record["val_robust"], record["val_fgsm"], state.overfitting
    if watch.begins(state.epoch, robust, fgsm):
        record["overfitting"] = True
        report.say(watch.warning(robust, fgsm, kept=int(state.best["epoch"])))


def _keep(raw: Path, averaged: Path, state: State) -> None:
    """Write the weights, and their average if there is one."""
    if is_main():
        write_tensors(raw, state.model.state_dict())
        if state.average is not None:
            write_tensors(averaged, state.average.weights)


def append_metrics(run: RunFolder, record: dict[str, Any]) -> None:
    """Append a line of metrics, in the main process only."""
    if is_main():
        append(run.metrics, json.dumps(record) + "\n")
