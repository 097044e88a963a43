"""Reading the subject of a command from its words: `TARGET [--model NAME] [--data NAME] [--flags]`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from uiat import models
from uiat.cli.numbers import REGISTRY
from uiat.config import ModelT
from uiat.data.config import DataConfig
from uiat.data.files import nearest
from uiat.errors import UserError
from uiat.evaluation.subject import Subject
from uiat.models import ModelConfig
from uiat.runs.folder import RunFolder


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


OptionsT = TypeVar("OptionsT")


def parse(options: type[OptionsT], args: list[str], prog: str) -> tuple[Path, OptionsT]:
    """Read `TARGET [--model NAME] [--data NAME] [--flags]` into a command's options, which have a `subject`."""
    if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
        raise UserError(f"{prog} needs a run folder or a weights file first: {prog} TARGET.")
    helping = args[0] in ("-h", "--help")
    target = Path("TARGET" if helping else args[0])
    chosen, rest = take(args if helping else args[1:], ("--model", "--data"))
    default: Subject[Any] = Subject(DataConfig(), models.get("resnet18")) if helping else _default(target, chosen)
    exact: Any = options[type(default.model)]  # type: ignore[index]
    with REGISTRY:
        found: OptionsT = tyro.cli(
            exact,
            default=options(default),  # type: ignore[call-arg]
            args=rest,
            prog=f"{prog} TARGET",
            description=f"{options.__doc__} TARGET: a run folder, or a weights file with --model NAME and --data NAME.",
            config=(tyro.conf.AvoidSubcommands,),
        )
    return target, found


def _default(target: Path, chosen: dict[str, str]) -> Subject[Any]:
    """Return the subject that the target and the chosen parts name, before other flags."""
    model: ModelConfig | None = models.get(chosen["--model"]) if "--model" in chosen else None
    if target.is_dir():
        config = RunFolder.open(target).read_config()
        images, name = config.data, chosen.get("--data", config.data.name)
        if name != images.name:  # how the run cut its own data says nothing of others
            images = DataConfig(name, size=images.size, download=images.download)
        return Subject(images, model or config.model)
    if not target.exists():
        advice = nearest(target) or "give a run folder, or a weights file with --model and --data."
        raise UserError(f"there is no {target}: {advice}")
    if model is None or "--data" not in chosen:
        missing = "--model NAME" if model is None else "--data NAME"
        run = target.parent
        instead = f", or give its run's folder {run} instead" if RunFolder(run).config.is_file() else ""
        raise UserError(f"{target} is a file by itself: say what it is with {missing} (see `uiat list`){instead}.")
    return Subject(DataConfig(name=chosen["--data"]), model)


SubjectField = Annotated[Subject[ModelT], tyro.conf.arg(name="")]
"""The type of the field `subject` of a command's options: its flags carry no prefix."""
