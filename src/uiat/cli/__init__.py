"""The command line: a thin edge over the objects."""

import os
import sys
from importlib import import_module

from uiat.cli.refusal import refuse, refused
from uiat.errors import PeerLost, UserError, unknown
from uiat.plugins import load_installed, take_imports

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("uiat.cli.train", "train a robust classifier, or go on with a run"),
    "evaluate": ("uiat.cli.evaluate", "measure a run on its test set, natural and attacked"),
    "curves": ("uiat.cli.curves", "accuracy against ε for easier and harder images, as numbers and pictures"),
    "inverse": ("uiat.cli.inverse", "inverse and universal inverse examples, and how often they lower the loss"),
    "reproduce": ("uiat.cli.reproduce", "the paper's tables and figures, at a scale of one's choice"),
    "export": ("uiat.cli.export", "write a run's network as a folder that loads without uiat"),
    "bench": ("uiat.cli.bench", "what a step of each method costs here: seconds, passes, memory"),
    "data": ("uiat.cli.data", "look at data, pack a folder of images, or download a data set"),
    "list": ("uiat.cli.listing", "methods, recipes, models, data sets and attacks, a line each"),
}

HANDS_ON = ("train", "reproduce")
"""Commands that are told what was imported: a run keeps it, and worker processes import it, too."""


def main(args: list[str] | None = None) -> int:
    """Run a command and return its exit code; what a person got wrong is one sentence and code 2."""
    words = sys.argv[1:] if args is None else args
    if refused():
        return 0
    try:
        return _dispatch(words)
    except UserError as error:
        return refuse(error)
    except PeerLost as error:
        if refused():
            return 0
        print(f"uiat: {error}", file=sys.stderr)
        return 1
    except SystemExit as stop:  # tyro's own usage errors and --help
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        print("uiat: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0


def _dispatch(given: list[str]) -> int:
    imports, words = take_imports(given)
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if words[0] == "--version":
        from uiat import __version__

        print(__version__)
        return 0
    if words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS)
    # Imported only now, so that `uiat --help` need not wait for torch and a command for another's imports.
    command = import_module(COMMANDS[words[0]][0])
    for sentence in load_installed():
        if os.environ.get("LOCAL_RANK", "0") == "0":  # of several processes, one speaks
            print(f"uiat: {sentence}", file=sys.stderr)
    for each in imports:
        each.load()
    return int(command.main(words[1:], imports) if words[0] in HANDS_ON else command.main(words[1:]))


def _usage() -> str:
    lines = [f"  {name:<10} {line}" for name, (_, line) in COMMANDS.items()]
    own = "--import MODULE, with any command: first import code of your own (docs/extending.md); may be repeated"
    return "usage: uiat COMMAND [--help]\n\n" + "\n".join(lines) + f"\n\n{own}"
