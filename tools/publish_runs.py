"""Publish finished runs of `uiat reproduce`, one file each: `python tools/publish_runs.py [FROM [TO]]`.

FROM and TO default to `results/cpu`. Weights, checkpoints and logs are not published. A folder in TO without weights is
removed, since its file holds everything else; a folder with weights stays, and is read instead of the file.
"""

import shutil
import sys
from pathlib import Path

from uiat.reproduce.cell import held_here
from uiat.runs.published import publish_run, published_names
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
        publish_run(folder, target / "runs" / f"{folder.name}.json")
        kept = [file.name for pattern in ("*.pt", "*.safetensors") for file in folder.glob(pattern)]
        if source.samefile(target) and set(kept) <= set(published_names(folder)):
            shutil.rmtree(folder)


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    publish(*(given + [PUBLISHED] * 2)[:2])
