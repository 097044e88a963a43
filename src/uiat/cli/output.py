"""Where a command writes its files, and what each of them says of the network and the images."""

from pathlib import Path
from typing import Any

from uiat.cli.subject import Ready
from uiat.errors import UserError
from uiat.serialize import encode


def open_folder(ready: Ready, out: str | None, name: str) -> Path:
    """Make the folder for a command's files: `out`, else `name` in the run's folder, or here for bare weights."""
    default = ready.run.path / name if ready.run is not None else Path(name)
    folder = Path(out) if out else default
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write the folder {folder}: {error.strerror}; choose another --out.") from None
    return folder


def facts(ready: Ready) -> dict[str, Any]:
    """Return what the numbers in a file were measured on."""
    options = ready.options
    return {
        "schema": 1,
        "target": ready.target.name,
        "weights": ready.weights_file.name,
        "model": encode(options.model),
        "data": options.data.name,
        "split": "test",
        "n": len(ready.images),
        "sample": options.sample if options.n is not None else "all",
        "exact": options.exact,
        "folded_batchnorms": ready.folds,
        "batch_size": options.batch_size,
        "seed": options.seed,
    }
