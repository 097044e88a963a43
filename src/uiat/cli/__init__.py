"""The command line: its commands, their interruption, and exit codes.

Nothing slow is imported here: `main` first handles Ctrl-C, then imports what the command needs.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uiat.plugins import Import

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("uiat.cli.train", "train a robust classifier, or resume a run"),
    "watch": ("uiat.cli.watch", "show a run in the terminal while it trains: progress, curves, last checkpoint"),
    "evaluate": ("uiat.cli.evaluate", "measure natural and robust accuracy on test images"),
    "curves": ("uiat.cli.curves", "measure accuracy against ε for easier and harder images, as numbers and figures"),
    "inverse": ("uiat.cli.inverse", "generate inverse examples, and count how often they lower the loss"),
    "predict": ("uiat.cli.predict", "classify picture files, and look for adversarial examples of them"),
    "reproduce": ("uiat.cli.reproduce", "reproduce the paper's tables and figures, at scale smoke, cpu or paper"),
    "compare": ("uiat.cli.compare", "compare runs: accuracies, paired tests, cost, differing settings"),
    "report": ("uiat.cli.report", "write an HTML report of runs: inverse to adversarial images, accuracies, curves"),
    "export": ("uiat.cli.export", "export a run's network to a folder that loads without uiat"),
    "push": ("uiat.cli.export:push", "upload a run's network to the Hugging Face Hub, with a model card"),
    "bench": ("uiat.cli.bench", "benchmark a training step of each method: seconds, passes, memory"),
    "data": ("uiat.cli.data", "inspect data, pack a folder of images, or download a data set"),
    "list": ("uiat.cli.listing", "list methods, models, data sets, attacks and recipes"),
    "env": ("uiat.cli.env", "print versions, CPU, GPUs and git commit, to paste into a bug report"),
    "completion": ("uiat.cli.completion", "print a completion script for bash or zsh"),
}
"""The module of each command, with its function unless that is `main`, and its line of help."""

KEEPS_IMPORTS = ("train", "reproduce")
"""Commands that are passed the imports: a run records them, and worker processes import them, too."""
_SAME_RESUMES = "; run the same command again to resume it"
_SAME_RESTARTS = "; run the same command again to restart it"
AFTER_INTERRUPT = {
    "train": "; a run that has started resumes from its last checkpoint: uiat train --resume RUN",
    "evaluate": _SAME_RESUMES,
    "curves": _SAME_RESUMES,
    "reproduce": _SAME_RESUMES,
    "inverse": _SAME_RESTARTS,
    "predict": _SAME_RESTARTS,
    "watch": "; the run itself continues",
    "report": _SAME_RESTARTS,
}
"""How to continue after Ctrl-C, by command."""

PACKAGE_NAMES = {
    **{name: name for name in ("jinja2", "matplotlib", "pooch", "pyautoattack", "requests", "rich", "scipy", "tqdm")},
    **{"PIL": "pillow", "sklearn": "scikit-learn", "tyro": "tyro"},
}
"""The package to install for each module that commands import besides torch, NumPy and safetensors."""


def main(args: list[str] | None = None) -> int:
    """Run a command and return its exit code; a `UserError` prints its message alone, with code 2."""
    release = _exit_on_interrupt()
    from uiat.cli.streams import flush_streams, prepare_streams
    from uiat.engine.signals import stop_with_parent

    stop_with_parent()
    prepare_streams()
    try:
        return flush_streams(_guarded(sys.argv[1:] if args is None else args, release))
    finally:
        release()


def _guarded(args: list[str], release: Callable[[], object]) -> int:
    """Run a command and return its exit code, whatever it raises; only an unexpected error propagates."""
    from uiat.cli.launch import refuse, refused
    from uiat.cli.streams import print_error
    from uiat.errors import PeerLost, UserError, explain

    try:
        return 0 if refused() else _dispatch(args, release)
    except UserError as error:
        return _failed(refuse(error))
    except PeerLost as error:
        known = refused()
        return _failed(0 if known else print_error(str(error), 1))
    except SystemExit as stop:  # tyro's own usage errors and --help
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        return _failed(print_error(f"interrupted{AFTER_INTERRUPT.get(args[0], '') if args else ''}", 130))
    except BrokenPipeError:
        return 0
    except Exception as error:
        if (explained := explain(error)) is not None:
            return _failed(refuse(explained))
        if _alone():
            raise
        traceback.print_exc()
        return _failed(1)


def _exit_on_interrupt() -> Callable[[], object]:
    """End the process with one line on Ctrl-C, until the returned function is called.

    There is nothing to save while modules are imported, and libraries that are half imported may swallow a
    KeyboardInterrupt, or report it with a traceback.
    """

    def end(_number: int, _frame: object) -> None:
        os.write(2, b"uiat: interrupted\n")
        os._exit(130)

    usual = signal.default_int_handler
    if signal.getsignal(signal.SIGINT) is not usual or threading.current_thread() is not threading.main_thread():
        return lambda: None  # only the main thread may set handlers
    signal.signal(signal.SIGINT, end)
    return lambda: signal.signal(signal.SIGINT, usual)


def _dispatch(args: list[str], release: Callable[[], object]) -> int:
    from uiat.errors import UserError, unknown
    from uiat.plugins import take_imports

    imports, rest = take_imports(args)
    if not rest or rest[0] in ("-h", "--help"):
        print(_usage())
        return 0
    command, *options = rest
    if command in ("--version", "version"):
        from uiat import __version__

        print(__version__)
        return 0
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS)
    try:
        return _run(command, options, imports, release)
    except ModuleNotFoundError as error:
        package = PACKAGE_NAMES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise UserError(
            f"`uiat {command}` needs {package}, which is not installed: pip install {package}, or "
            "`pip install '.[all]'` in a clone of uiat for every package that commands use."
        ) from None


def _run(name: str, args: list[str], imports: "tuple[Import, ...]", release: Callable[[], object]) -> int:
    from importlib import import_module

    from uiat.plugins import load_installed

    # Imported only now, so that `uiat --help` need not wait for torch, nor a command for another's imports.
    module, _, function = COMMANDS[name][0].partition(":")
    command = getattr(import_module(module), function or "main")
    for warning in load_installed():
        if os.environ.get("LOCAL_RANK", "0") == "0":  # of several processes, one prints
            print(f"uiat: {warning}", file=sys.stderr)
    for plugin in imports:
        plugin.load()
    release()
    return int(command(args, imports) if name in KEEPS_IMPORTS else command(args))


def _alone() -> bool:
    """Whether this is the only process; inconsistent variables of torchrun are reported elsewhere."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or "RANK" not in os.environ


def _failed(code: int) -> int:
    """Return the exit code of an error that has been printed; one of several processes exits with it immediately.

    The frames of its error own the gloo group, through DistributedDataParallel. Freeing the group waits for gloo's
    threads with the GIL held, while one of them may wait for the GIL (pytorch#56297): the process would never end.
    Everything it had to save is on the disk, and the lock of its run is released with the process.
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
    imports = "--import MODULE, with any command: import custom code first (docs/extending.md); may be repeated"
    return "usage: uiat COMMAND [--help]\n\n" + "\n".join(lines) + f"\n\n{imports}"
