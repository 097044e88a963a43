"""The target of a command: a run, an export, a model on the Hub or a weights file, and the flags that change it."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from uiat import models
from uiat.cli.flags import ALL, HELP, brief, flags_of, wants_brief
from uiat.cli.options import OptionsT, number_of, parse_number, run_parser, take
from uiat.config import ModelT
from uiat.data import SOURCES
from uiat.data.data_config import DataConfig
from uiat.errors import UserError
from uiat.evaluation.subject import Subject
from uiat.models import Imported, ModelConfig
from uiat.models.libraries import input_format
from uiat.models.wrappers import named_statistics, with_statistics
from uiat.paths import suggest_path
from uiat.runs.identity import choose_data
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import choose_model, locate, read_export

SubjectField = Annotated[Subject[ModelT], tyro.conf.arg(name="")]
"""Type of the field `subject` of a command's options; its flags have no prefix."""
SHARED = ("--weights", "--n", "--mean", "--std", "--eps", "--device")
"""Flags of the subject in the short help of a command."""


def parse_subject_command(
    options: type[OptionsT],
    args: list[str],
    prog: str,
    *,
    kind: type[Subject[Any]] = Subject,
    images: str = "",
    examples: tuple[str, str] = ("runs/mine --n 100", "weights.pt --model resnet18 --data cifar10"),
) -> tuple[Path, OptionsT]:
    """Parse `TARGET [--model NAME] [--data NAME] [FLAGS]` into a command's options, which have a field `subject`.

    A command that takes `images`, the placeholder of a positional argument, does not need the data of a run.
    """
    helping = bool(args) and args[0] in (*HELP, ALL)
    if not args or (args[0].startswith("-") and not helping):
        raise UserError(f"{prog} needs a run folder or a weights file as its first argument: {prog} TARGET.")
    target, default = Path("TARGET"), Subject[Any](DataConfig(), models.get_model("resnet18"))
    chosen, rest = take(args if helping else args[1:], ("--model", "--data"))
    if not helping:
        target = locate(args[0])
        default = _default(target, chosen, reads_data=not images)
    command = options(kind(default.data, default.model))  # type: ignore[call-arg]
    about = (
        f"{options.__doc__} TARGET is a run folder, an export, OWNER/NAME of a model on the Hub, or a weights file "
        "with --model NAME and --data NAME, and --mean and --std if its network was trained on normalised images."
    )
    if wants_brief(rest):
        omitted = {flag.name for flag in flags_of(default)} - set(SHARED)
        usage = " ".join(filter(None, [prog, "TARGET", images, "[FLAGS]"]))
        flags = (flag for flag in flags_of(command) if flag.name not in omitted)
        print(brief(usage, about, flags, [f"{prog} {example}" for example in examples]))
        raise SystemExit(0)
    exact: Any = options[type(default.model)]  # type: ignore[index]
    parsed: OptionsT = run_parser(exact, rest, f"{prog} TARGET", about, default=command)
    subject: Subject[Any] = parsed.subject  # type: ignore[attr-defined]
    if target.is_dir() and ("--model" not in chosen or isinstance(default.model, Imported)):
        _check_recorded(subject.model, default.model, target)
    model = _normalized(subject, target)
    return target, replace(parsed, subject=replace(subject, model=model))  # type: ignore[type-var]


def _default(target: Path, chosen: dict[str, str], *, reads_data: bool) -> Subject[Any]:
    """Return the subject of the target and the chosen parts, before other flags are applied.

    Data that only a run or an export names may be unknown here unless the command reads it.
    """
    model: ModelConfig | None = models.get_model(chosen["--model"]) if "--model" in chosen else None
    if target.is_dir() and (export := read_export(target)) is not None:
        name, subset = export.data["name"], export.data["test_subset"]
        if reads_data and "--data" not in chosen and name not in SOURCES:
            raise UserError(
                f"{target} was trained on {name[:100]!r}, which is not known here: give the data with --data."
            )
        images = DataConfig(chosen.get("--data", name), size=(export.spec.shape[1], export.spec.shape[2]))
        images = images if images.name != name else replace(images, test_subset=subset)
        return Subject(images, choose_model(export.model, chosen.get("--model", ""), target))
    if target.is_dir():
        config = RunFolder.open(target).read_config()
        images = config.data
        name = choose_data(images.name, chosen.get("--data"), target) if reads_data else images.name
        if name != images.name:  # subsets and splits of the run apply to its own data only
            images = DataConfig(name, size=images.size, download=images.download)
        return Subject(images, choose_model(config.model, chosen.get("--model", ""), target))
    if not target.exists():
        advice = suggest_path(target) or "give a run folder, or a weights file with --model and --data."
        raise UserError(f"there is no {target}: {advice}")
    if model is None or "--data" not in chosen:
        missing = "--model NAME" if model is None else "--data NAME"
        run = target.parent
        instead = f", or give the run folder {run} instead" if RunFolder(run).config.is_file() else ""
        raise UserError(f"{target} is a file: to read it as weights, give {missing} (see `uiat list`){instead}.")
    return Subject(DataConfig(name=chosen["--data"], size=input_format(chosen["--model"]).size), model)


def _check_recorded(given: Any, recorded: Any, target: Path) -> None:
    """Raise a `UserError` if a flag changes the network that a run or an export records, except its feature layer."""
    names = [entry.name for entry in fields(recorded) if entry.name != "features"]
    if changed := [name for name in names if getattr(given, name) != getattr(recorded, name)]:
        raise UserError(f"{target} records its network: omit --model.{changed[0].replace('_', '-')}.")


def _normalized(subject: Subject[Any], target: Path) -> ModelConfig:
    """Return a subject's network, normalised with its `--mean` and `--std`; a run or an export records its own."""
    given, model = read_statistics(subject.mean, subject.std), subject.model
    if given is None:
        return model  # type: ignore[no-any-return]
    if target.is_dir() and given != (getattr(model, "mean", ()), getattr(model, "std", ())):
        raise UserError(f"{target} records how its network normalises inputs: omit --mean and --std.")
    return with_statistics(model, *given)  # type: ignore[no-any-return]


def read_statistics(mean: Sequence[str], std: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the numbers of `--mean` and `--std`, each a number per channel or a name; `None` without these flags."""
    if not mean and not std:
        return None
    if not std and _is_name(mean):
        return named_statistics(mean[0])
    if not mean or not std:
        raise UserError("--mean and --std belong together: give both, or a name as --mean alone, such as cifar10.")
    return _per_channel("--mean", mean, 0), _per_channel("--std", std, 1)


def _per_channel(flag: str, words: Sequence[str], place: int) -> tuple[float, ...]:
    if _is_name(words):
        return named_statistics(words[0])[place]
    values = tuple(number_of(flag, word) for word in words)
    if any(value > 1 for value in values):
        raise UserError(f"{flag} is {' '.join(words)}: images are in [0, 1]; divide the numbers by 255.")
    return values


def _is_name(words: Sequence[str]) -> bool:
    try:
        parse_number(words[0])
    except ValueError:
        return len(words) == 1
    return False


def same_subject(args: list[str]) -> list[str]:
    """Return the arguments that name a command's target: a run folder, or a file with --model, --data and --mean."""
    chosen, rest = take(args, ("--model", "--data"))
    flag, statistics = "", list[str]()
    for word in rest:
        flag = word.partition("=")[0] if word.startswith("--") else flag
        statistics += [word] if flag in ("--mean", "--std") else []
    return [args[0], *(word for pair in chosen.items() for word in pair), *statistics]
