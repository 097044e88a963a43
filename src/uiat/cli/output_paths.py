"""Checks of output files and folders, before hours of work; nothing is created."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from uiat.errors import UserError
from uiat.evaluation.subject import LoadedSubject
from uiat.io import is_stream, output_path, reason
from uiat.runs.run_folder import RunFolder


def check_file(file: str | None, *, text: bool = False) -> None:
    """Raise a `UserError` if an output file cannot be written.

    A symbolic link is followed (`output_path`), except in a run folder (`check_run_links`). A device or a FIFO is
    accepted only for `text`.
    """
    if file is None:
        return
    path = output_path(file)
    check_run_links(Path(file))
    if text and is_stream(path) and os.access(path, os.W_OK):
        return
    if not Path(file).name or file.endswith(os.sep) or (os.path.lexists(path) and not os.path.isfile(path)):
        raise UserError(f"cannot write {file or 'a file without a name'}: give the path of a regular file.")
    _try_writing(path, f"cannot write {file}", "choose another path")


def check_run_links(path: Path) -> None:
    """Raise a `UserError` if an output path leads through a link within a run folder, which may be untrusted."""
    parts = (path, *path.absolute().parents)
    for k, part in enumerate(parts):
        if part.is_symlink() and any(RunFolder(folder).config.is_file() for folder in parts[k + 1 :]):
            raise UserError(f"{part} is a link in a run folder, and nothing is written through it: give another path.")


def out_folder(subject: LoadedSubject, out: str | None, name: str) -> Path:
    """Return a command's output folder, which is writable: `out`, else `name` in the run folder or here."""
    run = None if subject.run is None or subject.run.is_published else subject.run
    folder = Path(out) if out else run.path / name if run is not None else Path(name)
    if run is not None and not out:
        run.check_links()
    check_folder(folder)
    return folder


def check_folder(folder: Path) -> None:
    """Raise a `UserError` if an output folder cannot be created or written."""
    check_run_links(folder)
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    _try_writing(existing / "trial", f"cannot write the folder {folder}", "choose another --out")


def _try_writing(path: Path, what: str, advice: str) -> None:
    try:
        NamedTemporaryFile(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent).close()
    except OSError as error:
        raise UserError(f"{what}: {reason(error)}; {advice}.") from None
