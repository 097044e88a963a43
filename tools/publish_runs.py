"""Copy finished runs of `uiat reproduce` into the published results: `python tools/publish_runs.py FROM [TO]`.

Weights, checkpoints and locks stay behind. Measurements that were made before these said so get the attack, the weights
and the images that they are of, which the digest in their file name tells. Without FROM, that is all that is done.
"""

import json
import shutil
import sys
from pathlib import Path

from uiat.io import write_json
from uiat.reproduce.cell import held_here
from uiat.reproduce.measures import Attacked, measure_key
from uiat.runs.run_folder import RunFolder

PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "cpu"
FILES = ("config.json", "metrics.jsonl", "result.json", "learning.safetensors")
ATTACKS = ("natural", "pgd-20", "cw", "apgd-ce+apgd-t", "autoattack")
KNOWN = {
    measure_key(measure): measure
    for attack in ATTACKS
    for weights in ("best", "last")
    for measure in (
        Attacked(attack, None, weights),
        Attacked(attack, 1000, weights),
        Attacked(attack, 5000, weights, "unused"),
    )
}


def publish(source: Path, target: Path) -> None:
    """Copy the files of a finished run."""
    (target / "measures").mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    for file in (source / "measures").glob("*-????????.*"):
        shutil.copyfile(file, target / "measures" / file.name)


def complete(file: Path) -> None:
    """Add what a measurement is of, where it does not say so."""
    facts, measure = json.loads(file.read_text(encoding="utf-8")), KNOWN.get(file.stem)
    if measure is not None and "attack" not in facts:
        write_json(file, {"attack": measure.attack, "weights": measure.weights, "split": measure.split, **facts})


def main() -> None:
    """Publish the runs of a folder, and complete what is published."""
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else PUBLISHED
    if len(sys.argv) > 1:
        busy = held_here(Path(sys.argv[1]))
        for source in sorted(Path(sys.argv[1]).glob("runs/*")):
            if RunFolder(source).is_finished and source.name not in busy:
                publish(source, target / "runs" / source.name)
    for file in sorted(target.glob("runs/*/measures/*.json")):
        complete(file)


if __name__ == "__main__":
    main()
