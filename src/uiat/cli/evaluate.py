"""`uiat evaluate TARGET`: accuracy of a run, or of anyone's weights, natural and attacked."""

import hashlib
import json as json_text
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from uiat.cli.output import check_file
from uiat.cli.subject import SubjectField, parse
from uiat.config import ModelT
from uiat.data.fetch import cache_folder
from uiat.distributed import is_main, local_device, pick_device, process_group, rank, wait, world
from uiat.errors import UserError
from uiat.evaluation import suite
from uiat.evaluation.accuracy import wilson
from uiat.evaluation.evaluate import per_class, present, suite_card
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.subject import Ready, prepare
from uiat.evaluation.suite import SuiteResult, run_suite
from uiat.evaluation.verdicts import pack
from uiat.io import write_json, write_tensors
from uiat.models.layout import keeps_channels_last
from uiat.ranges import show_number
from uiat.runs.folder import RunFolder
from uiat.serialize import encode


@dataclass(frozen=True)
class Evaluate(Generic[ModelT]):
    """Measure a network on test images, natural and attacked."""

    subject: SubjectField[ModelT]
    """The network and the images."""
    attacks: tuple[str, ...] = ("natural", "pgd-20")
    """What to measure; `uiat list attacks` names them."""
    per_class: bool = False
    """Show the accuracy of each class too; it is in the JSON in any case."""
    json: str | None = None
    """Write the result there; a run's is added to its result.json in any case."""
    save_adversaries: str | None = None
    """Write the adversarial examples of every attack there, as safetensors."""
    restart: bool = False
    """Measure anew, also where an interrupted evaluation of the same kind could go on."""


def main(args: list[str]) -> int:
    """Run the command."""
    target, options = parse(Evaluate, args, "uiat evaluate")
    if not options.attacks:
        names = ", ".join(suite.DESCRIPTIONS)
        raise UserError(f"--attacks names none: give some of {names} (see `uiat list attacks`).")
    check_file(options.json)
    check_file(options.save_adversaries)
    if target.is_dir():
        check_file(str(RunFolder(target).result))
        RunFolder.open(target).read_card()
    with process_group(local_device(pick_device(options.subject.device))):
        return _evaluate(target, options)


def _evaluate(target: Path, options: Evaluate[Any]) -> int:
    ready = prepare(target, options.subject)
    notices = Console(stderr=True, highlight=False, quiet=not is_main())
    notices.print(_network_line(ready), markup=False, soft_wrap=True)
    ledger = open_ledger(ready, options.attacks, bool(options.save_adversaries), options.restart)
    if ledger.resumed:
        notices.print("going on with an interrupted evaluation (--restart measures anew)", markup=False)
    found = run_suite(
        ready.fast,
        ready.images,
        options.attacks,
        ready.base,
        batch_size=options.subject.batch_size,
        seed=options.subject.seed,
        device=ready.device,
        ledger=ledger,
        keep=bool(options.save_adversaries),
    )
    if is_main():
        _save(ready, options, to_card(ready, found), found)
        _show(ready, found)
        if options.per_class:
            _show_classes(ready, found)
    for notice in found.notices:
        notices.print(f"note: {notice}", markup=False, soft_wrap=True)
    wait()  # an interrupted evaluation can go on until its result is written
    ledger.close()
    return 0


def open_ledger(ready: Ready, attacks: tuple[str, ...], keep: bool, restart: bool) -> Ledger:
    """Return the ledger of exactly this evaluation: the same weights, images, attacks and settings."""
    facts = encode([ready.options, ready.base, list(attacks), keep, torch.__version__, rank(), world()])
    digest = hashlib.sha256(json_text.dumps(facts).encode())
    tensors = [*ready.model.state_dict().values(), ready.images.x, ready.images.y]
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    key = digest.hexdigest()[:32]
    folder = ready.run.path if ready.run is not None else cache_folder() / "evaluations"
    ledger = Ledger(folder / f"evaluation-{key}.safetensors", key)
    if restart:
        ledger.close()
        ledger.stages = {}
    return ledger


def to_card(ready: Ready, found: SuiteResult) -> dict[str, Any]:
    """Return what a result card says of an evaluation; every attack carries its own setting."""
    shared = {
        "weights": str(ready.weights_file.name),
        "data": ready.options.data.name,
        "split": "test",
        "sample": ready.options.sample if ready.options.n is not None else "all",
        "exact": ready.options.exact,
        "folded_batchnorms": ready.folds,
        "processes": world(),
    }
    return {"schema": 1, **shared, **suite_card(found, ready.images, ready.device)}


def _save(ready: Ready, options: Evaluate[Any], result: dict[str, Any], found: SuiteResult) -> None:
    """Add the result to a run's card, under what tells it from others, and write what was asked for."""
    if ready.run is not None:
        facts = {k: result[k] for k in ("weights", "data", "sample", "exact", "processes")}
        with ready.run.changed_card() as card:
            for name, attack in result["attacks"].items():
                verdicts = pack(found.attacks[name].correct)
                entry = {**facts, "attack": name, **attack, "verdicts": verdicts, "environment": result["environment"]}
                entries = card["evaluations"]
                entries[:] = [old for old in entries if _identity(old) != _identity(entry)] + [entry]
    if options.json:
        write_json(Path(options.json), result)
    if options.save_adversaries:
        tensors = {f"{name}/x_adv": a.x_adv for name, a in found.attacks.items() if a.x_adv is not None}
        tensors |= {f"{name}/correct": a.correct for name, a in found.attacks.items()}
        write_tensors(Path(options.save_adversaries), {**tensors, "y": ready.images.y})


def _identity(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what an entry was measured with: all but what it found, and where."""
    found = ("accuracy", "interval95", "seconds", "after", "per_class", "verdicts", "environment")
    return {k: v for k, v in entry.items() if k not in found}


def _network_line(ready: Ready) -> str:
    normalize = getattr(ready.options.model, "normalize", None)
    inputs = "" if normalize is None else f", inputs {'normalised inside' if normalize else 'not normalised'}"
    layout = "channels_last" if keeps_channels_last(ready.fast) else "its own memory layout"
    path = "as it is" if ready.options.exact else f"{layout}, {ready.folds} BatchNorms folded"
    return f"network: {type(ready.options.model).__name__}{inputs}; {path}"


def _show(ready: Ready, found: SuiteResult) -> None:
    sign = "L∞" if ready.base.norm == "linf" else "L2"
    table = Table(title=escape(f"{ready.weights_file}, {sign} ε = {show_number(ready.base.eps)}"))
    for heading in ("attack", "accuracy", "95 % interval", "images", "seconds"):
        table.add_column(heading, justify="left" if heading == "attack" else "right")
    for name, accuracy in found.attacks.items():
        low, high = wilson(int(accuracy.correct.sum()), len(accuracy.correct))
        interval, n = f"{low:.2%} – {high:.2%}", str(len(accuracy.correct))
        table.add_row(name, f"{accuracy.value:.2%}", interval, n, f"{accuracy.seconds:.1f}")
    Console().print(table)


def _show_classes(ready: Ready, found: SuiteResult) -> None:
    table = Table(title="accuracy by class")
    table.add_column("class")
    for name in found.attacks:
        table.add_column(name, justify="right")
    rows = {name: per_class(accuracy, ready.images) for name, accuracy in found.attacks.items()}
    for _, label in present(ready.images):
        table.add_row(escape(label), *(f"{row[label]:.1%}" for row in rows.values()))
    Console().print(table)
