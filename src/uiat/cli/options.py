"""Argument parsing that commands share: numbers, short help, output of the next command, custom code of a run."""

from collections.abc import Container, Iterable
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from uiat.cli.flags import ALL, HELP, brief, flags_of, positionals, wants_brief
from uiat.config import AnyConfig
from uiat.config_json import UnknownMethod
from uiat.distributed import is_main
from uiat.errors import UserError, quoted
from uiat.fields import show_number, unchecked
from uiat.plugins import Import, import_words, unnamed
from uiat.progress import print_result
from uiat.runs.run_folder import RunFolder

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


def check_counts(options: object, **least: int) -> None:
    """Raise a `UserError` for an option below its least value; one that is `None` was not given."""
    for name, lowest in least.items():
        value = getattr(options, name)
        if value is not None and value < lowest:
            raise UserError(f"--{name.replace('_', '-')} is {value}: give at least {lowest}.")


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


def check_imports(place: Path, kept: tuple[Import, ...]) -> None:
    """Raise a `UserError` for imports that a run or a file names and the user does not."""
    if kept:
        named = ", ".join(f"{plugin.name[:100]!r} in {plugin.folder[:100]!r}" for plugin in kept)
        raise unnamed(f"{place} was made with the import {named}", import_words(kept))


def read_known(run: RunFolder) -> AnyConfig:
    """Return a run's configuration, whose method must be registered."""
    config = run.read_config()
    if isinstance(config.method, UnknownMethod):
        check_imports(run.path, run.read_imports())
    check_known(config, run.path)
    return config


def check_known(config: AnyConfig, place: Path) -> None:
    """Raise a `UserError` if the method of a configuration is not registered."""
    if isinstance(config.method, UnknownMethod):
        raise UserError(
            f"the method {config.method.saved['kind']!r} of {place} is not known here: "
            "name the module that registers it with --import."
        )
