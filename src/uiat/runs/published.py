"""Published runs: one JSON file, NAME.json, holds all that is read of the finished run NAME.

The file maps names of files to contents: JSON unchanged, lines of metrics as a list, and tensors (verdicts on every
image) as the base64 of the zlib-compressed safetensors file. To be read, it is unpacked into a temporary folder.

Weights of the last epoch may be published, too: `weights/NAME.safetensors` beside the folder of the file, which names
them with their digest. The temporary folder then has them.
"""

import atexit
import json
import os
import re
import shutil
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from uiat.errors import UserError
from uiat.io import atomic, json_text, write_json
from uiat.runs.run_folder import PUBLISHED_MARK, RunFolder, read_json
from uiat.runs.weights import DIGEST, file_digest

PUBLISHED_NAME = re.compile(
    r"(config|result)\.json|metrics\.jsonl|learning\.safetensors|measures/[\w+-]+-[0-9a-f]{8}\.(json|safetensors)"
)
"""Names of the files of a run that are published."""
WEIGHTS_KEY = "weights"
"""The entry of a published file for its weights: name in the folder of the run, path of the file, and digest."""
LARGEST_TENSORS = 2**28
"""Bytes of a file of tensors beyond which nothing is decompressed."""


def published_file(folder: Path) -> Path:
    """Return where the run of this folder is, or would be, published."""
    return folder.parent / f"{folder.name}.json"


def readable_folder(folder: Path) -> Path:
    """Return the folder to read a run from: its own or, where the run is only published, a temporary copy."""
    file = published_file(folder)
    if (folder / "config.json").exists() or not file.is_file():
        return folder
    states = (path.stat() for path in (file, weights_file(file)) if path.is_file())
    return _temporary_copy(file, *(fact for state in states for fact in (state.st_mtime_ns, state.st_size)))


def open_published(path: Path) -> Path:
    """Return the folder to read a run from, given as NAME or NAME.json; any other path is returned unchanged."""
    if path.suffix == ".json" and path.is_file():
        saved = read_json(path)
        return readable_folder(path.with_suffix("")) if isinstance(saved, dict) and "files" in saved else path
    return path if os.path.lexists(path) else readable_folder(path)


def weights_file(file: Path) -> Path:
    """Return where the weights of a published file are, or would be."""
    return file.parent.parent / "weights" / f"{file.stem}.safetensors"


def publish_run(folder: Path, target: Path) -> None:
    """Write the published file of the finished run in a folder.

    Measurements in an earlier `target` are kept if it is of the same training: equal metrics in every epoch, but for
    times.
    """
    files = {name: _content(folder / name) for name in published_names(folder)}
    known = _read(target) if target.is_file() else {"files": {}}
    earlier, weights = known.pop("files"), {}
    if epochs_without_times(earlier.get("metrics.jsonl", [])) == epochs_without_times(files["metrics.jsonl"]):
        files, weights = {**earlier, **files}, known
    write_json(target, {**weights, "schema": 1, "files": dict(sorted(files.items()))})


def publish_weights(folder: Path, target: Path) -> Path:
    """Publish the last weights of the run in a folder beside its published file, and return their file.

    The run in the folder must be the published one: equal metrics in every epoch, but for times.
    """
    run, known = RunFolder(folder), _read(target)
    if epochs_without_times(known["files"]["metrics.jsonl"]) != epochs_without_times(run.read_metrics()):
        raise UserError(f"{folder} is not the run that {target} holds, its metrics differ: publish it first.")
    source, copy = run.find_weights("last"), weights_file(target)
    copy.parent.mkdir(exist_ok=True)
    with atomic(copy) as temporary:
        shutil.copyfile(source, temporary)
    place = os.path.relpath(copy, target.parent)
    known[WEIGHTS_KEY] = {"name": source.name, "file": place, DIGEST: file_digest(copy)}
    write_json(target, known)
    return copy


def published_names(folder: Path) -> list[str]:
    """Return the names of the files in a run's folder that are published."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if PUBLISHED_NAME.fullmatch(name))


def unpack_run(file: Path, folder: Path) -> None:
    """Write the files of a published run into a folder, byte for byte those that were published.

    The configuration comes last: a folder without one is not taken for a run.
    """
    saved = _read(file)
    files, weights = saved["files"], saved.get(WEIGHTS_KEY)
    if weights is not None and weights_file(file).is_file():
        _copy_weights(weights, weights_file(file), folder)
    for name in sorted(files, key=lambda name: name == "config.json"):
        path, value = folder / name, files[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".json":
            content = json_text(value).encode()
        elif path.suffix == ".jsonl":
            content = "".join(f"{json.dumps(line)}\n" for line in value).encode()
        else:
            content = zlib.decompressobj().decompress(b64decode(value), LARGEST_TENSORS)
        path.write_bytes(content)


def epochs_without_times(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of epochs in metrics without their times, which are equal for equal trainings."""
    return [{**record, "seconds": None} for record in records if record["kind"] == "epoch"]


def _content(path: Path) -> Any:
    if path.suffix == ".json":
        return read_json(path)
    if path.suffix == ".jsonl":
        return RunFolder(path.parent).read_metrics()
    return b64encode(zlib.compress(path.read_bytes(), 9)).decode()


def _copy_weights(entry: Any, file: Path, folder: Path) -> None:
    """Copy published weights into the folder of their run; their digest must be that of the entry."""
    name, digest = entry["name"], entry[DIGEST]
    if name not in ("last.safetensors", "last-averaged.safetensors") or file_digest(file) != digest:
        raise UserError(f"{file} does not hold the weights that its run was published with: restore it.")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / name)


def _read(file: Path) -> dict[str, Any]:
    saved = read_json(file)
    files = saved.get("files") if isinstance(saved, dict) and saved.get("schema") == 1 else None
    if not isinstance(files, dict) or "config.json" not in files or not all(map(PUBLISHED_NAME.fullmatch, files)):
        raise UserError(f"cannot read {file}: it is not a published run; move it away.")
    return dict(saved)


@cache
def _temporary_copy(file: Path, *_: int) -> Path:
    """Unpack a published run, once in a process for each version of its file."""
    folder = Path(mkdtemp(dir=_temporary_root())) / file.stem
    try:
        unpack_run(file, folder)
        (folder / PUBLISHED_MARK).touch()
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, zlib.error):
        raise UserError(f"cannot read {file}: it is damaged; restore it.") from None
    return folder


@cache
def _temporary_root() -> str:
    root = mkdtemp(prefix="uiat-published-")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root
