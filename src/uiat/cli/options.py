"""Argument parsing that commands share: numbers, radii, network and images, output files, custom code of a run."""

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from math import isfinite
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from uiat import models
from uiat.attacks import norm_of
from uiat.balls import Norm
from uiat.cli.flags import ALL, HELP, brief, flags_of, positionals, wants_brief
from uiat.config import AnyConfig, ModelT
from uiat.config_json import UnknownMethod
from uiat.data import SOURCES
from uiat.data.data_config import DataConfig
from uiat.distributed import is_main
from uiat.errors import UserError, quoted
from uiat.evaluation.subject import LoadedSubject, Subject
from uiat.fields import show_number, unchecked
from uiat.io import is_stream, output_path, reason
from uiat.methods import MethodConfig
from uiat.models import Imported, ModelConfig
from uiat.models.libraries import input_format
from uiat.models.wrappers import named_statistics, with_statistics
from uiat.paths import suggest_path
from uiat.plugins import Import, import_words, unnamed
from uiat.progress import print_result
from uiat.recipes.radius import SCALED_FIELDS
from uiat.runs.identity import choose_data
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import choose_model, locate, read_export

OptionsT = TypeVar("OptionsT")
RULES = ConstructorRegistry()


def run_parser(kind: Any, args: Iterable[str], prog: str, about: str, **default: Any) -> Any:
    """Parse arguments with tyro, which accepts fractions as numbers.

    Ranges are checked later, where the path of a field is known.
    """
    with unchecked(), RULES:
        return tyro.cli(
            kind,
            args=[HELP[1] if word == ALL else word for word in args],  # tyro's --help shows every flag
            prog=prog,
            description=about,
            config=(tyro.conf.AvoidSubcommands,),
            **default,
        )


def parse_number(text: str) -> float:
    """Return the value of a decimal number or a fraction."""
    over, slash, under = text.partition("/")
    try:
        return float(over) / float(under) if slash else float(over)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a number; write it as 0.03 or 8/255") from None


def number_of(flag: str, text: str) -> float:
    """Return the value of a flag that is a number of at least 0."""
    try:
        value = parse_number(text)
    except ValueError as error:
        raise UserError(f"{flag}: {error}.") from None
    if not isfinite(value) or value < 0:
        raise UserError(f"{flag} is {value}: give at least 0.")
    return value


@RULES.primitive_rule
def _fractions(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[float] | None:
    if info.type is not float:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="NUMBER",
        instance_from_str=lambda args: parse_number(args[0]),
        is_instance=lambda value: isinstance(value, int | float) and not isinstance(value, bool),
        str_from_instance=lambda value: [show_number(value)],
    )


def note_large_steps(method: MethodConfig, args: list[str]) -> str:
    """Return a note on step sizes and radii larger than ε without their own flag among the arguments, or ""."""
    if method.attack is None:
        return ""
    eps, norm = method.attack.eps, norm_of(method.attack)
    given = {word.partition("=")[0].removeprefix("--") for word in args}
    larger = [
        f"{name} = {show_number(value)}"
        for name, value in _radii(method, "method.", norm)
        if value > eps > 0 and name not in given
    ]
    shown = show_number(eps)
    advice = f"`--eps {shown}` scales all radii and step sizes along"
    return f"{', '.join(larger)}: larger than ε = {shown}; {advice}" if larger else ""


def _radii(part: Any, path: str, norm: Norm) -> Iterator[tuple[str, float]]:
    """Yield the radii and step sizes in this norm of a configuration and its parts, except parts that are disabled."""
    values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
    if not values.get("enabled", True):
        return
    for name, value in values.items():
        if is_dataclass(value):
            yield from _radii(value, f"{path}{name}.", norm)
        elif name in SCALED_FIELDS and isinstance(value, float) and values.get("norm", norm) == norm:
            yield f"{path}{name}", value


def take(args: list[str], flags: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Split `--flag VALUE` (or `--flag=VALUE`) of exactly these flags from the arguments; return them and the rest."""
    wanted, chosen, rest = set(flags), {}, []
    remaining = iter(args)
    for arg in remaining:
        flag, equals, value = arg.partition("=")
        if flag in wanted:
            chosen[flag] = value if equals else next(remaining, "")
        else:
            rest.append(arg)
    return chosen, rest


def suggest(lead: str, *words: object) -> None:
    """Print, as the last line of a command, the likely next command, quoted for the shell."""
    if is_main():
        print_result(f"{lead} {' '.join(map(quoted, words))}")


def same_subject(args: list[str]) -> list[str]:
    """Return the arguments that name a command's target: a run folder, or a file with --model, --data and --mean."""
    chosen, rest = take(args, ("--model", "--data"))
    flag, statistics = "", list[str]()
    for word in rest:
        flag = word.partition("=")[0] if word.startswith("--") else flag
        statistics += [word] if flag in ("--mean", "--std") else []
    return [args[0], *(word for pair in chosen.items() for word in pair), *statistics]


def read_statistics(mean: Sequence[str], std: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the numbers of `--mean` and `--std`, each a number per channel or a name; `None` without these flags."""
    if not mean and not std:
        return None
    if not std and len(mean) == 1 and not _is_number(mean[0]):
        return named_statistics(mean[0])
    if not mean or not std:
        raise UserError("--mean and --std belong together: give both, or a name as --mean alone, such as cifar10.")
    return _per_channel("--mean", mean, 0), _per_channel("--std", std, 1)


def _per_channel(flag: str, words: Sequence[str], place: int) -> tuple[float, ...]:
    if len(words) == 1 and not _is_number(words[0]):
        return named_statistics(words[0])[place]
    values = tuple(number_of(flag, word) for word in words)
    if any(value > 1 for value in values):
        raise UserError(f"{flag} is {' '.join(words)}: images are in [0, 1]; divide the numbers by 255.")
    return values


def _is_number(word: str) -> bool:
    try:
        parse_number(word)
    except ValueError:
        return False
    return True


def normalized_model(subject: Subject[Any], target: Path) -> ModelConfig:
    """Return a subject's network, normalised with its `--mean` and `--std`; a run or an export records its own."""
    given, model = read_statistics(subject.mean, subject.std), subject.model
    if given is None:
        return model  # type: ignore[no-any-return]
    if target.is_dir() and given != (getattr(model, "mean", ()), getattr(model, "std", ())):
        raise UserError(f"{target} records how its network normalises inputs: omit --mean and --std.")
    return with_statistics(model, *given)  # type: ignore[no-any-return]


def parse_options(
    kind: type[OptionsT],
    args: list[str],
    usage: str,
    examples: Iterable[str],
    *,
    about: str = "",
    most_used: Container[str] = (),
) -> OptionsT:
    """Parse the arguments of a command into its options, or print its short help and exit.

    `usage` is the command with its positional arguments; the short help has the `most_used` flags, or all.
    """
    text = " ".join(f"{kind.__doc__} {about}".split())
    if wants_brief(args):
        flags = (flag for flag in flags_of(kind) if not most_used or flag.name in most_used)
        arguments = (f"{name}: {description}" for name, description in positionals(kind))
        print(brief(f"{usage} [FLAGS]", " ".join([text, *arguments]), flags, examples))
        raise SystemExit(0)
    prog = " ".join(word for word in usage.split() if not word.isupper() and not word.startswith("["))
    options: OptionsT = run_parser(kind, args, prog, text)
    return options


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
    target = Path("TARGET") if helping else locate(args[0])
    chosen, rest = take(args if helping else args[1:], ("--model", "--data"))
    default: Subject[Any] = Subject(DataConfig(), models.get_model("resnet18"))
    if not helping:
        default = _default(target, chosen, reads_data=not images)
    default = kind(**{field.name: getattr(default, field.name) for field in fields(Subject)})
    exact: Any = options[type(default.model)]  # type: ignore[index]
    command = options(default)  # type: ignore[call-arg]
    about = (
        f"{options.__doc__} TARGET is a run folder, an export, OWNER/NAME of a model on the Hub, or a weights file "
        "with --model NAME and --data NAME, and --mean and --std if its network was trained on normalised images."
    )
    if wants_brief(rest):
        shared = {flag.name for flag in flags_of(default)} - set(SHARED)
        flags = (flag for flag in flags_of(command) if flag.name not in shared)
        usage = " ".join([prog, "TARGET", *([images] if images else []), "[FLAGS]"])
        print(brief(usage, about, flags, [f"{prog} {example}" for example in examples]))
        raise SystemExit(0)
    parsed: OptionsT = run_parser(exact, rest, f"{prog} TARGET", about, default=command)
    subject: Subject[Any] = parsed.subject  # type: ignore[attr-defined]
    if target.is_dir() and ("--model" not in chosen or isinstance(default.model, Imported)):
        _check_recorded(subject.model, default.model, target)
    model = normalized_model(subject, target)
    return target, replace(parsed, subject=replace(subject, model=model))  # type: ignore[type-var]


def _check_recorded(given: Any, recorded: Any, target: Path) -> None:
    """Raise a `UserError` if a flag changes the network that a run or an export records, except its feature layer."""
    names = [entry.name for entry in fields(recorded) if entry.name != "features"]
    if changed := [name for name in names if getattr(given, name) != getattr(recorded, name)]:
        raise UserError(f"{target} records its network: omit --model.{changed[0].replace('_', '-')}.")


def _default(target: Path, chosen: dict[str, str], *, reads_data: bool = True) -> Subject[Any]:
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
        images, name = config.data, config.data.name
        if reads_data:
            name = choose_data(name, chosen.get("--data"), target)
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


SubjectField = Annotated[Subject[ModelT], tyro.conf.arg(name="")]
"""Type of the field `subject` of a command's options; its flags have no prefix."""


def check_file(file: str | None, *, text: bool = False) -> None:
    """Raise a `UserError` if an output file cannot be written, before hours of work; nothing is created.

    A symbolic link is followed (`output_path`), except in a run folder (`check_run_links`). A device or a FIFO is
    accepted only for `text`.
    """
    if file is None:
        return
    path = output_path(file)
    check_run_links(Path(file))
    if text and is_stream(path) and os.access(path, os.W_OK):
        return
    if not Path(file).name or file.endswith(os.sep) or os.path.isdir(path):
        raise UserError(f"cannot write {file or 'a file without a name'}: give the path of a file, not of a folder.")
    if not os.path.isdir(path.absolute().parent):
        raise UserError(f"cannot write {file}: there is no such folder; create it first.")
    if os.path.lexists(path) and not os.path.isfile(path):
        raise UserError(f"cannot write {file}: it is not a regular file; give the path of a file.")
    _try_writing(path, f"cannot write {file}", "choose another path")


def check_run_links(path: Path) -> None:
    """Raise a `UserError` if an output path leads through a link within a run folder, which may be untrusted."""
    parts = (path, *path.absolute().parents)
    for k, part in enumerate(parts):
        if part.is_symlink() and any(RunFolder(folder).config.is_file() for folder in parts[k + 1 :]):
            raise UserError(f"{part} is a link in a run folder, and nothing is written through it: give another path.")


def out_folder(subject: LoadedSubject, out: str | None, name: str) -> Path:
    """Return a command's output folder, which is writable: `out`, else `name` in the run folder or here."""
    run = None if subject.run is None or subject.run.is_published else subject.run
    folder = Path(out) if out else run.path / name if run is not None else Path(name)
    if run is not None and not out:
        run.check_links()
    check_folder(folder)
    return folder


def check_folder(folder: Path) -> None:
    """Raise a `UserError` if an output folder cannot be created or written; nothing is created."""
    check_run_links(folder)
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    what = f"cannot write the folder {folder}"
    if not os.path.isdir(existing):
        raise UserError(f"{what}: {existing} is a file; choose another --out.")
    _try_writing(existing / "trial", what, "choose another --out")


def _try_writing(path: Path, what: str, advice: str) -> None:
    try:
        handle, trial = mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        os.unlink(trial)
    except OSError as error:
        raise UserError(f"{what}: {reason(error)}; {advice}.") from None


def check_imports(run: RunFolder) -> None:
    """Raise a `UserError` if a run was made with imports; called where the user gave none."""
    check_named(run.path, run.read_imports())


def check_named(place: Path, kept: tuple[Import, ...]) -> None:
    """Raise a `UserError` for imports that a run or a file names and the user does not."""
    if kept:
        named = ", ".join(f"{plugin.name[:100]!r} in {plugin.folder[:100]!r}" for plugin in kept)
        raise unnamed(f"{place} was made with the import {named}", import_words(kept))


def read_known(run: RunFolder) -> AnyConfig:
    """Return a run's configuration, whose method must be registered."""
    config = run.read_config()
    if isinstance(config.method, UnknownMethod):
        check_imports(run)
    check_known(config, run.path)
    return config


def check_known(config: AnyConfig, place: Path) -> None:
    """Raise a `UserError` if the method of a configuration is not registered."""
    if isinstance(config.method, UnknownMethod):
        raise UserError(
            f"the method {config.method.saved['kind']!r} of {place} is not known here: "
            "name the module that registers it with --import."
        )
