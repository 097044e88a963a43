"""`uiat evaluate TARGET`: accuracy of a run, or of anyone's weights, natural and attacked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from rich.markup import escape
from rich.table import Table

from uiat.cli.options import SubjectField, check_file, parse_subject_command, same_subject, suggest
from uiat.config import ModelT
from uiat.distributed import is_main, local_device, pick_device, process_group, wait
from uiat.errors import UserError
from uiat.evaluation import suite
from uiat.evaluation.evaluator import (
    evaluate_subject,
    open_ledger,
    per_class,
    present,
    subject_card,
    write_adversaries,
)
from uiat.evaluation.intervals import wilson
from uiat.evaluation.ledger import Ledger
from uiat.evaluation.subject import LoadedSubject, prepare
from uiat.evaluation.suite import SuiteResult
from uiat.evaluation.verdicts import pack
from uiat.fields import show_number
from uiat.io import json_text, output_path, write_output
from uiat.models import Imported
from uiat.models.layout import keeps_channels_last
from uiat.progress import PipeSafeConsole
from uiat.runs.result_card import add_evaluation
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import read_export

UNNORMALIZED = (
    "the network is given images in [0, 1], and nothing here normalises them: if it was trained on normalised images, "
    "return uiat.Normalized(network, mean, std) from the callable, or its accuracy is wrong"
)


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
    """Write the result there; a run's is added to its result.json, too, unless its folder cannot be written."""
    save_adversaries: str | None = None
    """Write the adversarial examples of every attack there, as safetensors."""
    restart: bool = False
    """Measure anew, also where an interrupted evaluation of the same kind could go on."""


def main(args: list[str]) -> int:
    """Run the command."""
    target, options = parse_subject_command(Evaluate, args, "uiat evaluate")
    if not options.attacks:
        names = ", ".join(suite.DESCRIPTIONS)
        raise UserError(f"--attacks names none: give some of {names} (see `uiat list attacks`).")
    check_file(options.json, text=True)
    check_file(options.save_adversaries)
    if target.is_dir() and read_export(target) is None:
        _check_run(RunFolder.open(target), options.json)
    with process_group(local_device(pick_device(options.subject.device))):
        _evaluate(target, options)
        suggest("done; next:", "uiat", "curves", *same_subject(args))
    return 0


def _check_run(run: RunFolder, json: str | None) -> None:
    """Refuse a run whose card cannot be read, or cannot be written where there is no other place for the result."""
    run.read_card()
    if run.is_writable():
        check_file(str(run.result))
    elif json is None:
        raise UserError(f"cannot write the run folder {run.path}: give --json FILE for the result.")


def _evaluate(target: Path, options: Evaluate[Any]) -> None:
    ready = prepare(target, options.subject)
    notices = PipeSafeConsole(stderr=True, highlight=False, quiet=not is_main())
    notices.print(_network_line(ready), markup=False, soft_wrap=True)
    if ready.run is None and isinstance(ready.options.model, Imported):
        notices.print(f"note: {UNNORMALIZED}", markup=False, soft_wrap=True)
    with open_ledger(ready, options.attacks, bool(options.save_adversaries), options.restart) as ledger:
        _measure(ready, options, ledger, notices)


def _measure(ready: LoadedSubject, options: Evaluate[Any], ledger: Ledger, notices: PipeSafeConsole) -> None:
    if ledger.resumed:
        notices.print("going on with an interrupted evaluation (--restart measures anew)", markup=False)
    measured = evaluate_subject(ready, options.attacks, ledger, keep=bool(options.save_adversaries))
    result = subject_card(ready, measured)
    if is_main():
        if ready.run is not None and not ready.run.is_writable():
            note = f"note: {ready.run.path} cannot be written, the result is in {options.json} alone"
            notices.print(note, markup=False, soft_wrap=True)
        elif ready.run is not None:
            verdicts = {name: pack(accuracy.correct) for name, accuracy in measured.attacks.items()}
            add_evaluation(ready.run, result, verdicts)
        if options.json:
            write_output(options.json, json_text(result))
        if options.save_adversaries:
            write_adversaries(output_path(options.save_adversaries), ready, measured)
        _show(ready, measured)
        if options.per_class:
            _show_classes(ready, measured)
    for notice in measured.notices:
        notices.print(f"note: {notice}", markup=False, soft_wrap=True)
    wait()  # an interrupted evaluation can go on until its result is written
    ledger.close()


def _network_line(ready: LoadedSubject) -> str:
    normalize = getattr(ready.options.model, "normalize", None)
    inputs = "" if normalize is None else f", inputs {'normalised inside' if normalize else 'not normalised'}"
    layout = "channels_last" if keeps_channels_last(ready.fast) else "its own memory layout"
    path = "as it is" if ready.options.exact else f"{layout}, {ready.folds} BatchNorms folded"
    return f"network: {type(ready.options.model).__name__}{inputs}; {path}"


def _show(ready: LoadedSubject, measured: SuiteResult) -> None:
    sign = "L∞" if ready.base.norm == "linf" else "L2"
    table = Table(title=escape(f"{ready.weights_file}, {sign} ε = {show_number(ready.base.eps)}"))
    for heading in ("attack", "accuracy", "95 % interval", "images", "seconds"):
        table.add_column(heading, justify="left" if heading == "attack" else "right")
    for name, accuracy in measured.attacks.items():
        low, high = wilson(int(accuracy.correct.sum()), len(accuracy.correct))
        interval, n = f"{low:.2%} – {high:.2%}", str(len(accuracy.correct))
        table.add_row(name, f"{accuracy.value:.2%}", interval, n, f"{accuracy.seconds:.1f}")
    PipeSafeConsole().print(table)


def _show_classes(ready: LoadedSubject, measured: SuiteResult) -> None:
    table = Table(title="accuracy by class")
    table.add_column("class")
    for name in measured.attacks:
        table.add_column(name, justify="right")
    rows = {name: per_class(accuracy, ready.images) for name, accuracy in measured.attacks.items()}
    for _, label in present(ready.images):
        table.add_row(escape(label), *(f"{row[label]:.1%}" for row in rows.values()))
    PipeSafeConsole().print(table)
