"""Publish finished runs of `uiat reproduce`, one file each.

    python tools/publish_runs.py [FROM [TO]]                   FROM and TO default to results/cpu
    python tools/publish_runs.py FROM TO --weights [NAME …]    the last weights of runs that TO holds already

Checkpoints and logs are not published, and weights only with --weights: of the named runs, or of all finished ones in
FROM that TO holds. They must be those of the published training: equal metrics in every epoch. A folder in TO without
other weights is removed, since its file holds everything else; a folder with weights stays, and is read instead.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from uiat.reproduce.cell import held_here
from uiat.runs.published import publish_run, publish_weights, published_file, published_names, weights_file
from uiat.runs.run_folder import RunFolder

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "cpu"


def publish(source: Path, target: Path) -> None:
    """Publish the finished runs in a folder of `uiat reproduce`, but for those that another process works on."""
    (target / "runs").mkdir(parents=True, exist_ok=True)
    busy = held_here(source)
    for folder in sorted(source.glob("runs/*/")):
        if folder.name in busy or not RunFolder(folder).is_finished:
            print(f"not finished: {folder}")
            continue
        file = target / "runs" / f"{folder.name}.json"
        publish_run(folder, file)
        kept = {path.name for pattern in ("*.pt", "*.safetensors") for path in folder.glob(pattern)}
        known = {*published_names(folder), *(("last.safetensors",) if weights_file(file).is_file() else ())}
        if source.samefile(target) and kept <= known:
            shutil.rmtree(folder)


def publish_all_weights(source: Path, target: Path, names: Sequence[str]) -> None:
    """Publish the last weights of runs, by name, or of all that are finished in `source` and published in `target`."""
    folders = [source / "runs" / name for name in names] or sorted(source.glob("runs/*/"))
    for folder in folders:
        file = published_file(target / "runs" / folder.name)
        if names or (file.is_file() and RunFolder(folder).is_finished):
            print(f"weights: {publish_weights(folder, file)}")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=Path, default=PUBLISHED)
    parser.add_argument("target", nargs="?", type=Path, default=PUBLISHED)
    parser.add_argument("--weights", nargs="*", metavar="NAME")
    given = parser.parse_args()
    if given.weights is None:
        publish(given.source, given.target)
    else:
        publish_all_weights(given.source, given.target, given.weights)


if __name__ == "__main__":
    main()
