"""`uiat completion`: a script for bash or zsh that completes commands, recipes, flags and their values.

The script is static: no Python runs at a TAB.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from uiat import data, methods, models, recipes
from uiat.cli import COMMANDS
from uiat.cli.bench import Bench
from uiat.cli.compare import Compare
from uiat.cli.curves import Curves
from uiat.cli.data import DATA_COMMANDS
from uiat.cli.env import JSON_FLAG
from uiat.cli.evaluate import Evaluate
from uiat.cli.export import Export, Push
from uiat.cli.flags import ALL, HELP, Flag, flags_of
from uiat.cli.inverse import InverseOptions
from uiat.cli.listing import NAMES_FLAG, accepted_names
from uiat.cli.predict import Predict, PredictSubject
from uiat.cli.report import Report
from uiat.cli.reproduce_job import CLAIMS, Reproduce
from uiat.cli.train_options import SHORT, Command, NewRun, Resume
from uiat.cli.watch import WatchOptions
from uiat.data.data_config import DataConfig
from uiat.errors import UserError, quoted
from uiat.evaluation.subject import Subject
from uiat.plugins import FLAG
from uiat.reproduce.experiments import EXPERIMENTS

SHELLS = ("bash", "zsh")
COMPLETION_USAGE = """usage: uiat completion [bash|zsh]

Print a script that completes commands, recipes and flags. Load it in each shell, or once for all:
  bash: uiat completion bash > ~/.local/share/bash-completion/completions/uiat
  zsh:  uiat completion zsh > ~/.uiat-completion; echo 'source ~/.uiat-completion' >> ~/.zshrc"""
ZSH = """\
(( $+functions[compdef] )) || { autoload -U +X compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit
"""
SCRIPT = """\
_uiat_offered() {{
  case "$1" in
{cases}
    *) offered="";;
  esac
}}
_uiat() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" first=2 offered=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    command=uiat first=1
  elif [ "$command" = data ] && [ "$COMP_CWORD" -gt 2 ]; then
    command="data ${{COMP_WORDS[2]}}" first=3
  fi
  _uiat_offered "$command ${{COMP_WORDS[COMP_CWORD-1]}}"
  if [ -z "$offered" ]; then
    case "$current" in
      -*) _uiat_offered "$command -";;
      *) [ "$COMP_CWORD" -eq "$first" ] && _uiat_offered "$command";;
    esac
  fi
  COMPREPLY=($(compgen -W "$offered" -- "$current"))
}}
complete -o default -o bashdefault -F _uiat uiat
"""


def main(args: list[str]) -> int:
    """Run the command."""
    if not args or args[0] in HELP:
        print(COMPLETION_USAGE)
        return 0
    if args[0] not in SHELLS or len(args) > 1:
        raise UserError(f"uiat completion takes one of {', '.join(SHELLS)}; got {' '.join(args)!r}.")
    print((ZSH if args[0] == "zsh" else "") + completion_script(), end="")
    return 0


def completion_script() -> str:
    """Return the shell functions that complete a line, and the line that registers them."""
    cases = (f"    {quoted(place)}) offered={quoted(' '.join(offered))};;" for place, offered in completions().items())
    return SCRIPT.format(cases="\n".join(cases))


def completions() -> dict[str, tuple[str, ...]]:
    """Return what may be typed at each place of a command line.

    `COMMAND` is the place of the first argument, `COMMAND -` that of flags, and `COMMAND FLAG` that of a flag's value.
    """
    sources, networks = tuple(data.SOURCES), tuple(models.MODELS)
    attacks, names = tuple(accepted_names()["attacks"]), tuple(methods.METHODS)
    found: dict[str, tuple[str, ...]] = {}
    for command, flags in _flags_by_command():
        choices = {name: flag.choices for flag in flags for name in flag.names}
        found[f"{command} -"] = tuple(sorted({*choices, HELP[1], FLAG}))
        found |= {f"{command} {name}": offered for name, offered in choices.items() if offered}
    commands = (*COMMANDS, HELP[1], "--version")
    return found | {
        "uiat": commands,
        "uiat -": commands,
        "train": tuple(recipes.RECIPES),
        "reproduce": (*EXPERIMENTS, "all", CLAIMS),
        "data": tuple(DATA_COMMANDS),
        "data info": sources,
        "data fetch": sources,
        "list": tuple(accepted_names()),
        "completion": SHELLS,
        "evaluate --attacks": attacks,
        "curves --attack": attacks,
        "report --attack": attacks,
        "predict --attack": attacks,
        "bench --methods": names,
        "reproduce --only": names,
        **{f"{command} --{flag}": sources for command in SUBJECT_COMMANDS for flag in ("data", "data.name")},
        **{f"{command} --model": networks for command in (*SUBJECT_COMMANDS, "bench")},
    }


SUBJECT_COMMANDS = ("train", "evaluate", "curves", "inverse", "predict")
"""The commands that take `--data NAME` and `--model NAME`."""


def _flags_by_command() -> Iterator[tuple[str, list[Flag]]]:
    """Yield each command with its flags: those of all recipes and networks, where these have flags."""
    parts = [Flag("--data", ""), Flag("--model", ""), Flag(ALL, "")]
    yield "train", [*_train_flags(), *parts]
    on_images = {"evaluate": Evaluate, "curves": Curves, "inverse": InverseOptions, "predict": Predict}
    for command, kind in on_images.items():
        subject: type[Subject[Any]] = PredictSubject if kind is Predict else Subject
        every: Iterable[Any] = (kind(subject(DataConfig(), model)) for model in models.MODELS.values())
        yield command, [flag for options in every for flag in flags_of(options)] + parts
    yield "bench", [flag for model in models.MODELS.values() for flag in flags_of(Bench(model))] + parts[1:]
    simple = {"watch": WatchOptions, "compare": Compare, "report": Report, "export": Export, "push": Push}
    simple |= {"reproduce": Reproduce, **{f"data {name}": kind for name, (kind, _) in DATA_COMMANDS.items()}}
    for command, kind in simple.items():
        yield command, [*flags_of(kind), Flag(ALL, "")]
    yield "list", [Flag(NAMES_FLAG, "")]
    yield "env", [Flag(JSON_FLAG, "")]
    yield "completion", []
    yield "data", []


def _train_flags() -> Iterator[Flag]:
    """Yield the flags of all recipes and networks."""
    configs = [recipes.get_recipe(name) for name in recipes.RECIPES]
    configs += [replace(configs[0], model=model) for model in models.MODELS.values()]
    kinds = {(type(config.model), type(config.method)): config for config in configs}
    yield from flags_of(Resume)
    flags = {flag.name: flag for config in kinds.values() for flag in flags_of(Command(config, NewRun()))}
    yield from flags.values()
    yield from (replace(flags[whole], name=short) for short, whole in SHORT.items())
    yield Flag("--eps", "")
