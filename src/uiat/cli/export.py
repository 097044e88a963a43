"""`uiat export RUN`: a folder with the network that any PyTorch user can load without this package."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from uiat.cli.options import REGISTRY, suggest
from uiat.export.exported_folder import HubCard, write_folder
from uiat.export.loaded_run import load_run
from uiat.progress import PipeSafeConsole
from uiat.runs.run_folder import Weights


@dataclass(frozen=True)
class Export:
    """Write a run's network as a folder: model.py, model.safetensors, card.json and README.md."""

    run: tyro.conf.Positional[str]
    """The run's folder."""
    weights: Weights = "best"
    """The weights of the best epoch on the validation split, or of the last epoch; averaged where the run averages,
    unless `-raw`."""
    out: str = ""
    """The folder to write; empty: RUN/export. Only an earlier export in it is overwritten."""
    onnx: bool = False
    """Write model.onnx, too; this needs the package onnx."""
    hub_card: bool = False
    """Write what a model on the Hub needs, too: config.json, and README.md as a model card with metadata."""
    license: str = "mit"
    """The licence of the weights, as the Hub names it; for the model card."""
    model: str = ""
    """The run's network, as `module:callable`, where it is a custom one: only code that is named here is imported."""
    data_dir: str | None = None
    """Where data sets are looked for; only a run that does not say what its data was needs it again."""


def main(args: list[str]) -> int:
    """Run the command."""
    with REGISTRY:
        options = tyro.cli(Export, args=args, prog="uiat export", description=Export.__doc__)
    loaded = load_run(Path(options.run), options.weights, options.data_dir, options.model)
    out = Path(options.out) if options.out else loaded.run.path / "export"
    if not options.out:
        loaded.run.check_links()
    hub = HubCard(options.license) if options.hub_card else None
    files = write_folder(loaded, out, onnx=options.onnx, hub=hub)
    PipeSafeConsole(highlight=False).print(f"{out}: {', '.join(files)}", markup=False, soft_wrap=True)
    for note in loaded.notes:
        PipeSafeConsole(stderr=True, highlight=False).print(f"note: {note}", markup=False, soft_wrap=True)
    suggest("done; next:", "uiat", "report" if loaded.evaluations else "evaluate", loaded.run.path)
    return 0
