"""`uiat completion bash|zsh`: a script that completes commands, recipes and flags; no Python runs at a TAB."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from uiat import data, methods, models, recipes
from uiat.cli import COMMANDS
from uiat.cli.bench import Bench
from uiat.cli.compare import Compare
from uiat.cli.curves import Curves
from uiat.cli.data import COMMANDS as DATA_COMMANDS
from uiat.cli.evaluate import Evaluate
from uiat.cli.export import Export
from uiat.cli.flags import ALL, HELP, Flag, flags_of
from uiat.cli.inverse import InverseOptions
from uiat.cli.listing import NAMES, groups
from uiat.cli.push import Push
from uiat.cli.report import Report
from uiat.cli.reproduce_job import CLAIMS, Reproduce
from uiat.cli.train import SHORT, Command, NewRun, Resume
from uiat.cli.watch import WatchOptions
from uiat.data.data_config import DataConfig
from uiat.errors import UserError, quoted
from uiat.evaluation import suite
from uiat.evaluation.subject import Subject
from uiat.plugins import FLAG
from uiat.reproduce.experiments import EXPERIMENTS

SHELLS = ("bash", "zsh")
HOW = """usage: uiat completion [bash|zsh]

Print a script that completes commands, recipes and flags. Load it in each shell, or once for all:
  bash: uiat completion bash > ~/.local/share/bash-completion/completions/uiat
  zsh:  uiat completion zsh > ~/.uiat-completion; echo 'source ~/.uiat-completion' >> ~/.zshrc"""
ZSH = """\
(( $+functions[compdef] )) || { autoload -U +X compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit
"""
SCRIPT = """\
_uiat() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" place="${{COMP_WORDS[1]}}" offered=""
  local first=2
  if [ "$place" = data ] && [ "$COMP_CWORD" -gt 2 ]; then
    place="data ${{COMP_WORDS[2]}}"
    first=3
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    offered={commands}
  else
    case "$place $prev" in
{values}
    esac
    if [ -z "$offered" ]; then
      case "$place" in
{places}
      esac
    fi
  fi
  COMPREPLY=($(compgen -W "$offered" -- "$cur"))
}}
complete -o default -o bashdefault -F _uiat uiat
"""


@dataclass
class Place:
    """What may stand after a command."""

    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Each flag, and the words that it takes where these are known."""
    first: tuple[str, ...] = ()
    """The words that may follow the command; else files."""

    def add(self, flags: Iterable[Flag]) -> "Place":
        """Add flags, with the words that each takes, and return the place."""
        self.flags |= {name: flag.choices for flag in flags for name in flag.names}
        return self


def main(args: list[str]) -> int:
    """Run the command."""
    if not args or args[0] in HELP:
        print(HOW)
        return 0
    if args[0] not in SHELLS or len(args) > 1:
        raise UserError(f"uiat completion takes one of {', '.join(SHELLS)}, not {' '.join(args)!r}.")
    print((ZSH if args[0] == "zsh" else "") + script(places()), end="")
    return 0


def places() -> dict[str, Place]:
    """Return what may stand after each command; a command of `uiat data` is a place of its own."""
    by_command = {
        "train": Place(first=tuple(recipes.RECIPES)).add(_train_flags()),
        "evaluate": _subject(Evaluate),
        "curves": _subject(Curves),
        "inverse": _subject(InverseOptions),
        "bench": Place().add(flag for model in models.MODELS.values() for flag in flags_of(Bench(model))),
        "reproduce": Place(first=(*EXPERIMENTS, "all", CLAIMS)).add(flags_of(Reproduce)),
        "list": Place({NAMES: ()}, tuple(groups())),
        "completion": Place(first=SHELLS),
        "data": Place(first=tuple(DATA_COMMANDS)),
    }
    by_command |= {name: Place().add(flags_of(kind)) for name, kind in _simple()}
    for name in ("data info", "data fetch"):
        by_command[name].first = tuple(data.SOURCES)
    attacks = tuple(name for name in suite.DESCRIPTIONS if name.isascii() and name.islower())
    for name, words in {"evaluate --attacks": attacks, "curves --attack": attacks, "report --attack": attacks}.items():
        command, _, flag = name.partition(" ")
        by_command[command].flags[flag] = words
    for name in ("bench --methods", "reproduce --only"):
        command, _, flag = name.partition(" ")
        by_command[command].flags[flag] = tuple(methods.METHODS)
    for name in ("train", "evaluate", "curves", "inverse"):
        by_command[name].flags |= {"--data": tuple(data.SOURCES), "--data.name": tuple(data.SOURCES)}
    for name in ("train", "evaluate", "curves", "inverse", "bench"):
        by_command[name].flags |= {"--model": tuple(models.MODELS), ALL: ()}
    for place in by_command.values():
        place.flags |= {HELP[1]: (), FLAG: ()}
    return by_command


def _simple() -> Iterator[tuple[str, type]]:
    yield from {"watch": WatchOptions, "compare": Compare, "report": Report, "export": Export, "push": Push}.items()
    yield from ((f"data {name}", kind) for name, (kind, _) in DATA_COMMANDS.items())


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


def _subject(kind: Any) -> Place:
    """Return what may stand after a command about a network, whichever that is."""
    every = (flag for model in models.MODELS.values() for flag in flags_of(kind(Subject(DataConfig(), model))))
    return Place().add(every)


def script(by_command: dict[str, Place]) -> str:
    """Return the function of the shell, and the line that makes it known."""
    values = [
        f"      {quoted(f'{name} {flag}')}) offered={quoted(' '.join(words))};;"
        for name, place in by_command.items()
        for flag, words in place.flags.items()
        if words
    ]
    cases = []
    for name, place in by_command.items():
        cases.append(f'        {quoted(name)}) case "$cur" in -*) offered={quoted(" ".join(sorted(place.flags)))};;')
        first = f"offered={quoted(' '.join(place.first))}"
        cases.append(f'          *) [ "$COMP_CWORD" -eq "$first" ] && {first};; esac;;')
    commands = quoted(" ".join((*COMMANDS, *HELP[1:], "--version")))
    return SCRIPT.format(commands=commands, values="\n".join(values), places="\n".join(cases))
