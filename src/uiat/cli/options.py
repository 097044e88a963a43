"""What commands share: numbers, flags that name a network and images, places to write, code that a run names."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from uiat import models
from uiat.attacks import norm_of
from uiat.balls import Norm
from uiat.cli.flags import ALL, HELP, brief, flags_of, full_help, wants_brief
from uiat.config import AnyConfig, ModelT, UnknownMethod
from uiat.data import SOURCES
from uiat.data.data_config import DataConfig
from uiat.distributed import is_main
from uiat.errors import UserError, quoted
from uiat.evaluation.subject import LoadedSubject, Subject
from uiat.fields import check_radius, show_number, unchecked
from uiat.io import is_stream, output_path, reason
from uiat.methods import MethodConfig
from uiat.models import ModelConfig
from uiat.paths import suggest_path
from uiat.plugins import import_words, unnamed
from uiat.progress import PipeSafeConsole
from uiat.recipes.radius import SCALED_FIELDS, at_radius
from uiat.runs.identity import choose_data
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import choose_model, locate, read_export

RULES = ConstructorRegistry()


class Parsing:
    """Within it, tyro reads numbers as people write them; they are checked afterwards, where their path is known."""

    def __enter__(self) -> None:
        self.stack = ExitStack()
        self.stack.enter_context(unchecked())
        self.stack.enter_context(RULES)

    def __exit__(self, *error: Any) -> None:
        self.stack.close()


REGISTRY = Parsing()


def parse_number(text: str) -> float:
    """Read a decimal number or a fraction of two."""
    over, slash, under = text.partition("/")
    try:
        return float(over) / float(under) if slash else float(over)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a number; write it as 0.03 or 8/255") from None


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


def with_radius(config: AnyConfig, eps: float) -> AnyConfig:
    """Return a run at another ε, with every length of its attack and inverse (α, ε', α') scaled along."""
    method: Any = config.method
    attack = config.method.attack
    check_radius("--eps", eps, norm_of(attack))
    if attack is None:
        return replace(config, validate=replace(config.validate, eps=eps))
    if not attack.eps:
        raise UserError(
            "--eps scales the lengths of a method, but its ε is 0: give --method.attack.eps and the others."
        )
    method = at_radius(method, eps, attack.eps)
    method = replace(method, attack=replace(method.attack, eps=eps))  # without the rounding of the scaling
    return replace(config, method=method, validate=at_radius(config.validate, eps, attack.eps))


def too_long(method: MethodConfig, args: list[str]) -> str:
    """Return one line about a step or an ε' that is longer than ε, unless its own flag is among the words."""
    if method.attack is None:
        return ""
    eps, norm = method.attack.eps, norm_of(method.attack)
    given = {word.partition("=")[0].removeprefix("--") for word in args}
    longer = [
        f"{name} = {show_number(length)}"
        for name, length in _lengths(method, "method.", norm)
        if length > eps > 0 and name not in given
    ]
    shown = show_number(eps)
    return f"{', '.join(longer)}: longer than ε = {shown}; `--eps {shown}` scales all lengths along" if longer else ""


def _lengths(part: Any, path: str, norm: Norm) -> Iterator[tuple[str, float]]:
    """Name the lengths in this norm of a configuration and its parts, without those of a part that is off."""
    values = {entry.name: getattr(part, entry.name) for entry in fields(part)}
    if not values.get("enabled", True):
        return
    for name, value in values.items():
        if is_dataclass(value):
            yield from _lengths(value, f"{path}{name}.", norm)
        elif name in SCALED_FIELDS and isinstance(value, float) and values.get("norm", norm) == norm:
            yield f"{path}{name}", value


def take(args: list[str], flags: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Take `--flag VALUE` (or `--flag=VALUE`) out of the words, for exactly these flags; return them and the rest."""
    wanted, chosen, rest = set(flags), {}, []
    words = iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag in wanted:
            chosen[flag] = value if equals else next(words, "")
        else:
            rest.append(word)
    return chosen, rest


def suggest(lead: str, *words: object) -> None:
    """Print, as the last line of a command, the one that a person would give next: it can be copied as it stands."""
    line = f"{lead} {' '.join(map(quoted, words))}"
    PipeSafeConsole(highlight=False, quiet=not is_main()).print(line, markup=False, soft_wrap=True)


def same_subject(args: list[str]) -> list[str]:
    """Return the words of a command that name its target: a run's folder, or a file with --model and --data."""
    chosen, _ = take(args, ("--model", "--data"))
    return [args[0], *(word for pair in chosen.items() for word in pair)]


SHARED = ("--weights", "--n", "--eps", "--device")
"""Flags of the subject that the short help of a command shows."""
OptionsT = TypeVar("OptionsT")


def parse_subject_command(options: type[OptionsT], args: list[str], prog: str) -> tuple[Path, OptionsT]:
    """Read `TARGET [--model NAME] [--data NAME] [--flags]` into a command's options, which have a `subject`."""
    helping = bool(args) and args[0] in (*HELP, ALL)
    if not args or (args[0].startswith("-") and not helping):
        raise UserError(f"{prog} needs a run folder or a weights file first: {prog} TARGET.")
    target = Path("TARGET") if helping else locate(args[0])
    chosen, rest = take(args if helping else args[1:], ("--model", "--data"))
    default: Subject[Any] = Subject(DataConfig(), models.get_model("resnet18")) if helping else _default(target, chosen)
    exact: Any = options[type(default.model)]  # type: ignore[index]
    command = options(default)  # type: ignore[call-arg]
    about = (
        f"{options.__doc__} TARGET: the folder of a run or an export, owner/name of one on the Hub, or a weights file "
        "with --model NAME and --data NAME."
    )
    if wants_brief(rest):
        shared = {flag.name for flag in flags_of(default)} - set(SHARED)
        flags = (flag for flag in flags_of(command) if flag.name not in shared)
        examples = (f"{prog} runs/mine --n 100", f"{prog} weights.pt --model resnet18 --data cifar10")
        print(brief(f"{prog} TARGET [FLAGS]", about, flags, examples))
        raise SystemExit(0)
    with REGISTRY:
        parsed: OptionsT = tyro.cli(
            exact,
            default=command,
            args=full_help(rest),
            prog=f"{prog} TARGET",
            description=about,
            config=(tyro.conf.AvoidSubcommands,),
        )
    return target, parsed


def _default(target: Path, chosen: dict[str, str]) -> Subject[Any]:
    """Return the subject that the target and the chosen parts name, before other flags."""
    model: ModelConfig | None = models.get_model(chosen["--model"]) if "--model" in chosen else None
    if target.is_dir() and (export := read_export(target)) is not None:
        name, subset = export.data["name"], export.data["test_subset"]
        if "--data" not in chosen and name not in SOURCES:
            raise UserError(f"{target} was trained on {name[:100]!r}, which is not known here: name data with --data.")
        images = DataConfig(chosen.get("--data", name), size=(export.spec.shape[1], export.spec.shape[2]))
        images = images if images.name != name else replace(images, test_subset=subset)
        return Subject(images, choose_model(export.model, chosen.get("--model", ""), target))
    if target.is_dir():
        config = RunFolder.open(target).read_config()
        images, name = config.data, choose_data(config.data.name, chosen.get("--data"), target)
        if name != images.name:  # how the run cut its own data says nothing of others
            images = DataConfig(name, size=images.size, download=images.download)
        return Subject(images, choose_model(config.model, chosen.get("--model", ""), target))
    if not target.exists():
        advice = suggest_path(target) or "give a run folder, or a weights file with --model and --data."
        raise UserError(f"there is no {target}: {advice}")
    if model is None or "--data" not in chosen:
        missing = "--model NAME" if model is None else "--data NAME"
        run = target.parent
        instead = f", or give its run's folder {run} instead" if RunFolder(run).config.is_file() else ""
        raise UserError(f"{target} is a file by itself: say what it is with {missing} (see `uiat list`){instead}.")
    return Subject(DataConfig(name=chosen["--data"]), model)


SubjectField = Annotated[Subject[ModelT], tyro.conf.arg(name="")]
"""The type of the field `subject` of a command's options: its flags carry no prefix."""


def check_file(place: str | None, *, text: bool = False) -> None:
    """Refuse a place where no file can be written, before hours of work and not after; nothing is left there.

    A link to a file is followed (`output_path`), but not in a run folder (`check_run_links`). A device or a FIFO takes
    `text` alone.
    """
    if place is None:
        return
    path = output_path(place)
    check_run_links(Path(place))
    if text and is_stream(path) and os.access(path, os.W_OK):
        return
    if not Path(place).name or place.endswith(os.sep) or os.path.isdir(path):
        raise UserError(f"cannot write {place or 'a file without a name'}: give the path of a file, not of a folder.")
    if not os.path.isdir(path.absolute().parent):
        raise UserError(f"cannot write {place}: there is no such folder, make it first.")
    if os.path.lexists(path) and not os.path.isfile(path):
        raise UserError(f"cannot write {place}: it is a device, a FIFO or the like; give the path of a file.")
    _try_writing(path, f"cannot write {place}", "choose another place")


def check_run_links(path: Path) -> None:
    """Refuse a path to write that leads through a link within a run folder, which may come from somebody else."""
    parts = (path, *path.absolute().parents)
    for k, part in enumerate(parts):
        if part.is_symlink() and any(RunFolder(folder).config.is_file() for folder in parts[k + 1 :]):
            raise UserError(f"{part} is a link in a run folder, and nothing is written through it: give another path.")


def out_folder(ready: LoadedSubject, out: str | None, name: str) -> Path:
    """Return the folder for a command's files, which can be made: `out`, else `name` in the run's folder, or here."""
    default = ready.run.path / name if ready.run is not None else Path(name)
    folder = Path(out) if out else default
    if ready.run is not None and not out:
        ready.run.check_links()
    check_folder(folder)
    return folder


def check_folder(folder: Path) -> None:
    """Refuse a folder for files that cannot be made or written; nothing is made yet."""
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
    """Refuse a run that was made with imports, of which a person has named none."""
    if kept := run.read_imports():
        named = ", ".join(f"{plugin.name[:100]!r} in {plugin.folder[:100]!r}" for plugin in kept)
        raise unnamed(f"{run.path} was made with the import {named}", import_words(kept))


def read_known(run: RunFolder) -> AnyConfig:
    """Return a run's configuration, whose method has to be known."""
    config = run.read_config()
    if isinstance(config.method, UnknownMethod):
        check_imports(run)
        raise UserError(
            f"the method {config.method.saved['kind']!r} of {run.path} is not known here: "
            "name the module that registers it with --import."
        )
    return config
