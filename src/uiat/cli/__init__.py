"""The command line: a thin edge over the objects.

Nothing slow is imported here: `main` first makes Ctrl-C harmless, then imports what a command needs.
"""

import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uiat.plugins import Import

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("uiat.cli.train", "train a robust classifier, or go on with a run"),
    "watch": ("uiat.cli.watch", "a run in the terminal while it trains: progress, curves, last checkpoint"),
    "evaluate": ("uiat.cli.evaluate", "measure a run on its test set, natural and attacked"),
    "curves": ("uiat.cli.curves", "accuracy against ε for easier and harder images, as numbers and pictures"),
    "inverse": ("uiat.cli.inverse", "inverse and universal inverse examples, and how often they lower the loss"),
    "reproduce": ("uiat.cli.reproduce", "the paper's tables and figures, at a scale of one's choice"),
    "compare": ("uiat.cli.compare", "runs side by side: accuracies, paired tests, cost, differing settings"),
    "report": ("uiat.cli.report", "one HTML page for some runs: from friend to enemy, accuracies, curves, settings"),
    "export": ("uiat.cli.export", "write a run's network as a folder that loads without uiat"),
    "push": ("uiat.cli.push", "put a run's network on the Hub, with a model card"),
    "bench": ("uiat.cli.bench", "what a step of each method costs here: seconds, passes, memory"),
    "data": ("uiat.cli.data", "look at data, pack a folder of images, or download a data set"),
    "list": ("uiat.cli.listing", "methods, models, data sets, attacks, and recipes as a table"),
    "completion": ("uiat.cli.completion", "a script for bash or zsh that completes commands, recipes and flags"),
}

KEEPS_IMPORTS = ("train", "reproduce")
"""Commands that are told what was imported: a run keeps it, and worker processes import it, too."""
_RESUMES = "; the same command goes on where it stopped"
AFTER_INTERRUPT = {
    "train": "; a run that was begun goes on from its last checkpoint: uiat train --resume RUN",
    "evaluate": _RESUMES,
    "curves": _RESUMES,
    "reproduce": _RESUMES,
    "inverse": "; the same command begins again",
    "watch": "; the run goes on",
    "report": "; the same command begins again",
}
"""How to go on with a command that Ctrl-C interrupted."""

PACKAGE_NAMES = {
    **{name: name for name in ("jinja2", "matplotlib", "pooch", "pyautoattack", "requests", "rich", "scipy", "tqdm")},
    **{"PIL": "pillow", "sklearn": "scikit-learn", "tyro": "tyro"},
}
"""What commands may import beyond torch, NumPy and safetensors, and the name by which each is installed."""


def main(args: list[str] | None = None) -> int:
    """Run a command and return its exit code; a `UserError` is one sentence and code 2."""
    importing = InterruptGuard()
    from uiat.cli.streams import flush_streams, prepare_streams
    from uiat.engine.signals import stop_with_parent

    stop_with_parent()
    prepare_streams()
    try:
        return flush_streams(_guarded(sys.argv[1:] if args is None else args, importing))
    finally:
        importing.done()


def _guarded(words: list[str], importing: "InterruptGuard") -> int:
    """Run a command and return its exit code, whatever it raises; only what may be a bug passes."""
    from uiat.cli.launch import refuse, refused
    from uiat.cli.streams import print_error
    from uiat.errors import PeerLost, UserError, explain

    try:
        return 0 if refused() else _dispatch(words, importing)
    except UserError as error:
        return _failed(refuse(error))
    except PeerLost as error:
        known = refused()
        return _failed(0 if known else print_error(str(error), 1))
    except SystemExit as stop:  # tyro's own usage errors and --help
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        return _failed(print_error(f"interrupted{AFTER_INTERRUPT.get(words[0], '') if words else ''}", 130))
    except BrokenPipeError:
        return 0
    except Exception as error:
        if (explained := explain(error)) is not None:
            return _failed(refuse(explained))
        if _alone():
            raise
        traceback.print_exc()
        return _failed(1)


class InterruptGuard:
    """From its creation until `done` is called, Ctrl-C ends the process with one line.

    Nothing is to be saved while modules are imported, and libraries that are half imported may swallow a
    KeyboardInterrupt, or report it with a traceback of their own.
    """

    def __init__(self) -> None:
        self.quiet = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        try:
            if self.quiet:
                signal.signal(signal.SIGINT, self._end)
        except ValueError:  # only the main thread may set handlers, and hears signals
            self.quiet = False

    def done(self) -> None:
        """Let Ctrl-C be a KeyboardInterrupt again."""
        if self.quiet:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.quiet = False

    @staticmethod
    def _end(_number: int, _frame: object) -> None:
        os.write(2, b"uiat: interrupted\n")
        os._exit(130)


def _dispatch(given: list[str], importing: InterruptGuard) -> int:
    from uiat.errors import UserError, unknown
    from uiat.plugins import take_imports

    imports, words = take_imports(given)
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if words[0] in ("--version", "version"):
        from uiat import __version__

        print(__version__)
        return 0
    if words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS)
    try:
        return _run(words, imports, importing)
    except ModuleNotFoundError as error:
        package = PACKAGE_NAMES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise UserError(
            f"`uiat {words[0]}` needs {package}, which is not installed: pip install {package}, or "
            "`pip install '.[all]'` in a clone of uiat for everything that commands use."
        ) from None


def _run(words: list[str], imports: "tuple[Import, ...]", importing: InterruptGuard) -> int:
    from importlib import import_module

    from uiat.plugins import load_installed

    # Imported only now, so that `uiat --help` need not wait for torch and a command for another's imports.
    command = import_module(COMMANDS[words[0]][0])
    for sentence in load_installed():
        if os.environ.get("LOCAL_RANK", "0") == "0":  # of several processes, one prints
            print(f"uiat: {sentence}", file=sys.stderr)
    for plugin in imports:
        plugin.load()
    importing.done()
    return int(command.main(words[1:], imports) if words[0] in KEEPS_IMPORTS else command.main(words[1:]))


def _alone() -> bool:
    """Whether this process is not one of several; what is wrong with torchrun's variables is an error elsewhere."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or "RANK" not in os.environ


def _failed(code: int) -> int:
    """Return the exit code of an error that has been printed; one of several processes ends with that code at once.

    The frames of its error own the gloo group, through DistributedDataParallel. Freeing the group waits for gloo's
    threads with Python's lock held, while one of them may wait for that lock (pytorch#56297): the process would never
    end. All that it had to save is on the disk, and the lock of its run ends with it.
    """
    if _alone():
        return code
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _usage() -> str:
    lines = [f"  {name:<10} {line}" for name, (_, line) in COMMANDS.items()]
    imports = "--import MODULE, with any command: first import code of your own (docs/extending.md); may be repeated"
    return "usage: uiat COMMAND [--help]\n\n" + "\n".join(lines) + f"\n\n{imports}"
