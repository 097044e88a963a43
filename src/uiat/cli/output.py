"""Where a command writes its files, and what each of them says of the network and the images."""

import os
from pathlib import Path

from uiat.errors import UserError
from uiat.evaluation.subject import Ready
from uiat.io import reason


def check_file(place: str | None) -> None:
    """Refuse a place where no file can be written, before hours of work and not after; nothing is left there."""
    if place is None:
        return
    path = Path(place)
    if not path.name or place.endswith(os.sep) or os.path.isdir(path):
        raise UserError(f"cannot write {place or 'a file without a name'}: give the path of a file, not of a folder.")
    if not os.path.isdir(path.absolute().parent):
        raise UserError(f"cannot write {place}: there is no such folder, make it first.")
    _try_writing(path, f"cannot write {place}", "choose another place")


def out_folder(ready: Ready, out: str | None, name: str) -> Path:
    """Return the folder for a command's files, which can be made: `out`, else `name` in the run's folder, or here."""
    default = ready.run.path / name if ready.run is not None else Path(name)
    folder = Path(out) if out else default
    check_folder(folder)
    return folder


def check_folder(folder: Path) -> None:
    """Refuse a folder for files that cannot be made or written; nothing is made yet."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    what = f"cannot write the folder {folder}"
    if not os.path.isdir(there):
        raise UserError(f"{what}: {there} is a file; choose another --out.")
    _try_writing(there / "trial", what, "choose another --out")


def _try_writing(path: Path, what: str, advice: str) -> None:
    trial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise UserError(f"{what}: {reason(error)}; {advice}.") from None
