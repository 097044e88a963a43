"""Starting the command line in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def spawn(module: str, *args: str, cwd: Path = ROOT, **environment: str) -> subprocess.Popen[str]:
    """Start `python -m MODULE ARGS…` with one thread, from the root of the repository or another folder.

    It hears Ctrl-C and SIGHUP, also where the tests themselves run in the background or under nohup, which ignore them.
    """
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "120", **environment}
    return subprocess.Popen(
        [sys.executable, "-m", module, *args],
        cwd=cwd,
        env=settings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,
    )


def hear_signals() -> None:
    """Let Ctrl-C and SIGHUP have their effect."""
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)


def finish(process: subprocess.Popen[str], words: str = "") -> tuple[int, str, str]:
    """Give a process its input, wait for it, and return (exit code, stdout, stderr)."""
    out, err = process.communicate(words, timeout=1800)
    return process.returncode, out, err
