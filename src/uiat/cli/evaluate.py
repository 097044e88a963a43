"""`uiat evaluate TARGET…`: natural and robust accuracy of runs, exports or weights files."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, Generic

from rich.table import Table

from uiat.cli.options import suggest
from uiat.cli.output_paths import check_file
from uiat.cli.streams import print_error
from uiat.cli.subject_options import SubjectField, parse_subject_command, same_subject
from uiat.config import ModelT
from uiat.distributed import is_main, local_device, pick_device, process_group, wait, world
from uiat.errors import UserError, explain
from uiat.evaluation import suite
from uiat.evaluation.evaluation_result import AttackResult, EvaluationResult, pack_verdicts, write_adversaries
from uiat.evaluation.subject import LoadedSubject, load_subject, measured_facts, open_ledger
from uiat.fields import show_number
from uiat.io import json_text, output_path, write_output
from uiat.models import Imported, NetworkOptions
from uiat.models.fast import keeps_channels_last
from uiat.models.wrappers import statistics_of
from uiat.progress import PipeSafeConsole, print_message
from uiat.runs.result_card import add_evaluation
from uiat.runs.run_folder import RunFolder

UNNORMALIZED = (
    "the network gets images in [0, 1] that are not normalised: if it was trained on normalised images, give --mean "
    "and --std (or return uiat.Normalized(network, mean, std) from the callable), or its accuracy is wrong"
)


@dataclass(frozen=True)
class Evaluate(Generic[ModelT]):
    """Measure natural and robust accuracy on test images; several TARGETs are measured one after another."""

    subject: SubjectField[ModelT]
    """The network and the images."""
    attacks: tuple[str, ...] = ("natural", "pgd-20")
    """Names of attacks, as in `uiat list attacks`."""
    per_class: bool = False
    """Also show the accuracy of each class; the JSON always has it."""
    json: str | None = None
    """A file for the result; the result of a run is also added to its result.json, if its folder can be written."""
    save_adversaries: str | None = None
    """A safetensors file for the adversarial examples of every attack."""
    restart: bool = False
    """Start from scratch instead of resuming an interrupted evaluation with the same options."""


@dataclass(frozen=True)
class Measured:
    """What is kept of an evaluation; the network itself is not, since there may be many."""

    result: EvaluationResult
    card: dict[str, Any]
    is_run: bool


def main(args: list[str]) -> int:
    """Run the command."""
    targets = list(dict.fromkeys(takewhile(lambda word: not word.startswith("-"), args)))
    args = [*targets, *dropwhile(lambda word: not word.startswith("-"), args)]
    if len(targets) > 1:
        return _evaluate_several(targets, args[len(targets) :])
    target, options = _parse(args)
    with process_group(local_device(pick_device(options.subject.device))):
        _evaluate(target, options)
        suggest("done; next:", "uiat", "curves", *same_subject(args))
    return 0


def _parse(args: list[str]) -> tuple[Path, Evaluate[Any]]:
    target, options = parse_subject_command(Evaluate, args, "uiat evaluate")
    if not options.attacks:
        names = ", ".join(suite.DESCRIPTIONS)
        raise UserError(f"--attacks is empty: give one or more of {names} (see `uiat list attacks`).")
    check_file(options.json, text=True)
    check_file(options.save_adversaries)
    return target, options


def _evaluate_several(targets: list[str], flags: list[str]) -> int:
    """Evaluate one network after another and print one table; what fails is reported, and the others continue."""
    parsed, failed = dict[str, tuple[Path, Evaluate[Any]]](), dict[str, str]()
    for name in targets:
        with _reported(name, failed):
            parsed[name] = _parse([name, *flags])
    if any(options.save_adversaries for _, options in parsed.values()):
        raise UserError("--save-adversaries is for one network: evaluate them one by one.")
    measured: dict[str, Measured] = {}
    device = next((options.subject.device for _, options in parsed.values()), "auto")
    with process_group(local_device(pick_device(device))):
        try:
            for name, (target, options) in parsed.items():
                with _reported(name, failed):
                    measured[name] = _evaluate(target, options, title=name)
        finally:  # also after Ctrl-C: what is measured is not lost
            if is_main() and measured:
                _write_several(measured, failed, next(iter(parsed.values()))[1].json)
        runs = [name for name, found in measured.items() if found.is_run]
        if not failed and len(runs) > 1:
            suggest("done; next:", "uiat", "compare", *runs)
    return 2 if failed else 0


@contextmanager
def _reported(name: str, failed: dict[str, str]) -> Iterator[None]:
    """Report the error of one network and keep its message; an unexpected error is raised."""
    try:
        yield
    except SystemExit as stop:  # tyro has printed what is wrong with the flags
        if not stop.code:
            raise
        failed[name] = "its flags are not valid; see above."
    except Exception as error:
        explained = error if isinstance(error, UserError) else explain(error)
        if explained is None:
            raise
        failed[name] = str(explained)
    if name in failed and is_main():
        print_error(f"{name}: {failed[name]}", 2)


def _write_several(measured: dict[str, Measured], failed: dict[str, str], json: str | None) -> None:
    """Print the table of several networks, and write a list of their cards, with the errors of those that failed."""
    if json:
        cards = [{"target": name, **found.card} for name, found in measured.items()]
        write_output(json, json_text([*cards, *({"target": name, "error": error} for name, error in failed.items())]))
    table = _table("", "network", "ε")
    for attack in next(iter(measured.values())).result:
        for name, network in measured.items():
            found = network.result[attack]
            radius = show_number(found.eps) if found.setting else ""
            table.add_row(found.attack, name, radius, *_cells(found))
        table.add_section()
    PipeSafeConsole().print(table)
    if len(sets := {found.card["data"] for found in measured.values()}) > 1:
        _say(f"note: these networks were evaluated on different data: {', '.join(sorted(sets))}")


def _evaluate(target: Path, options: Evaluate[Any], title: str = "") -> Measured:
    """Evaluate one network of one command, or of several; `title` is its name if there are several."""
    subject = load_subject(target, options.subject)
    if subject.run is not None:
        _check_run(subject.run, options.json)
    lacking = f"note: {UNNORMALIZED}" if _may_lack_normalization(subject) else ""
    _say(title, _network_line(subject), lacking)
    with open_ledger(subject, options.attacks, bool(options.save_adversaries), options.restart) as ledger:
        if ledger.resumed:
            _say("resuming an interrupted evaluation (--restart starts from scratch)")
        result = suite.run_suite(
            subject.fast,
            subject.images,
            options.attacks,
            subject.base,
            seed=options.subject.seed,
            batch_size=options.subject.batch_size,
            device=subject.device,
            ledger=ledger,
            keep=bool(options.save_adversaries),
        )
        card = result.to_dict(**measured_facts(subject), processes=world())
        if is_main():
            _write(subject, options, result, card, alone=not title)
            if not title:
                _print_accuracies(subject, result)
            if options.per_class:
                _print_classes(result, title)
        _say(*(f"note: {notice}" for notice in result.notices))
        wait()  # an interrupted evaluation can be resumed until its result is written
        ledger.close()
    return Measured(result, card, subject.run is not None)


def _say(*lines: str) -> None:
    """Print messages, of several processes those of the main one; empty ones are skipped."""
    for line in filter(None, lines if is_main() else ()):
        print_message(line)


def _check_run(run: RunFolder, json: str | None) -> None:
    """Refuse a run whose card cannot be read, or cannot be written where there is no other file for the result."""
    run.read_card()
    if run.is_writable():
        check_file(str(run.result))
    elif json is None:
        raise UserError(f"cannot write the run folder {run.path}: give --json FILE for the result.")


def _write(
    subject: LoadedSubject,
    options: Evaluate[Any],
    result: EvaluationResult,
    card: dict[str, Any],
    *,
    alone: bool,
) -> None:
    run = subject.run
    if run is not None and not run.is_writable():
        _say(f"note: {run.path} cannot be written; the result is only in {options.json}")
    elif run is not None and run.is_published and not options.json:
        _say("note: the run is published, so the result is not kept: give --json FILE")
    elif run is not None and not run.is_published:
        add_evaluation(run, card, {found.attack: pack_verdicts(found.correct) for found in result.values()})
    if options.json and alone:
        write_output(options.json, json_text(card))
    if options.save_adversaries:
        write_adversaries(output_path(options.save_adversaries), result, subject.images.y)


def _may_lack_normalization(subject: LoadedSubject) -> bool:
    """Whether weights that were not trained here are in a network that is not known to normalise, nor not to."""
    trained_elsewhere, known = not subject.target.is_dir(), isinstance(subject.options.model, NetworkOptions)
    return trained_elsewhere and not known and statistics_of(subject.model) is None


def _network_line(subject: LoadedSubject) -> str:
    model, known = subject.options.model, statistics_of(subject.model)
    flags = "" if subject.target.is_dir() else " (--mean and --std would)"
    inputs = f", inputs not normalised{flags}" if isinstance(model, NetworkOptions) else ""
    if known is not None:
        mean, std = (" ".join(f"{value:.4g}" for value in part) for part in known)
        inputs = f", inputs normalised inside with mean {mean}, std {std}"
    layout = "channels_last" if keeps_channels_last(subject.fast) else "its own memory layout"
    path = "unmodified" if subject.options.exact else f"{layout}, {subject.folds} BatchNorms folded"
    if subject.options.data.size is not None:
        inputs = f", images resized to {'×'.join(map(str, subject.images.spec.shape[1:]))}{inputs}"
    name = model.target if isinstance(model, Imported) else type(model).__name__
    return f"network: {name}{inputs}; {path}"


def _print_accuracies(subject: LoadedSubject, result: EvaluationResult) -> None:
    sign = "L∞" if subject.base.norm == "linf" else "L2"
    table = _table(f"{subject.weights_file}, {sign} ε = {show_number(subject.base.eps)}")
    for found in result.values():
        table.add_row(found.attack, *_cells(found))
    PipeSafeConsole().print(table)


def _table(title: str, *more: str) -> Table:
    table = Table(title=title or None)
    for heading in ("attack", *more, "accuracy", "95 % interval", "images", "seconds"):
        table.add_column(heading, justify="left" if heading in ("attack", "network") else "right")
    return table


def _cells(found: AttackResult) -> tuple[str, ...]:
    low, high = found.interval
    return f"{found.accuracy:.2%}", f"{low:.2%} – {high:.2%}", str(len(found.correct)), f"{found.seconds:.1f}"


def _print_classes(result: EvaluationResult, title: str) -> None:
    table = Table(title=f"accuracy by class{', ' if title else ''}{title}")
    table.add_column("class")
    for found in result.values():
        table.add_column(found.attack, justify="right")
    for label in next(iter(result.values())).per_class:
        table.add_row(label, *(f"{found.per_class[label]:.1%}" for found in result.values()))
    PipeSafeConsole().print(table)
