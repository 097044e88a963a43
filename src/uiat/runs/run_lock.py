"""The lock that admits one writer to the folder of a run, and the refusal of links in it."""

import errno
import os
import platform
import re
from contextlib import suppress
from pathlib import Path

from uiat import locks
from uiat.errors import Resumable, UserError, quoted
from uiat.io import WriteError, reason

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a full or broken disk, a quota or a file size limit."""
HELPER = "helper"
"""The folder of a run's helper."""


def check_links(folder: Path) -> None:
    """Refuse to write a run that contains symbolic links: in a downloaded run, they could lead to any file.

    `helper` may be a link to a run beside this one, as `uiat reproduce` creates it; it is only read.
    """
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            if path.is_symlink() and not (path == folder / HELPER and _is_beside(os.readlink(path))):
                raise UserError(f"{path} is a link, which is not allowed in a run: replace it by its content.")


def _is_beside(target: str) -> bool:
    """Whether a link in a run leads to a folder beside the run."""
    parts = Path(target).parts
    return len(parts) == 2 and parts[0] == ".." != parts[1]


def lock_run(folder: Path, file: Path) -> int:
    """Lock a run, write this process's id into the lock file, and return the descriptor."""
    try:
        check_links(folder)
        handle = locks.open_locked(file)
    except BlockingIOError:
        raise UserError(
            f"the run folder {folder} is in use by {_holder(file)}: wait for it, or choose another --out."
        ) from None
    except locks.LockUnsupported as error:
        raise UserError(
            f"the run folder {folder} cannot be locked ({reason(error)}), so that two processes could write it: "
            "put it on a file system with locks."
        ) from None
    except OSError as error:
        raise UserError(f"cannot write the run folder {folder}: {reason(error)}.") from None
    with suppress(OSError):  # the text is only for error messages
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {platform.node()}".encode(), 0)
    return handle


def _holder(file: Path) -> str:
    """Return the process that the lock file names, unless it is known to have ended."""
    text = ""
    if file.is_file():  # reading a FIFO would block
        with suppress(OSError), file.open("rb") as stream:
            text = stream.read(100).decode("utf-8", "replace").strip()
    match = re.fullmatch(r"process (\d+)(?: on (.*))?", text)
    if match and match[2] in (None, platform.node()):
        try:
            os.kill(int(match[1]), 0)
        except PermissionError:  # it belongs to another user
            pass
        except (ProcessLookupError, OverflowError):
            return "another process"
    return text if match else "another process"


def disk_error(error: OSError, folder: Path, has_checkpoint: bool) -> OSError | Resumable:
    """Return the error of a full disk with the command that resumes the run; any other error unchanged."""
    if not isinstance(error, WriteError) and error.errno not in DISK:
        return error
    path = error.path if isinstance(error, WriteError) else error.filename or f"a file in {folder}"
    kept = "the last good checkpoint is kept" if has_checkpoint else "there is no checkpoint yet"
    return Resumable(
        f"cannot write {path}: {reason(error)}; {kept}. Make room, then resume with "
        f"`uiat train --resume {quoted(folder)}`."
    )
