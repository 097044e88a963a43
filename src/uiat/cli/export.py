"""`uiat export RUN`: a run's network as a folder that loads in plain PyTorch, without this package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from uiat.cli.options import parse_options, suggest
from uiat.export.exported_folder import write_folder
from uiat.export.loaded_run import LoadedRun, load_run
from uiat.export.model_card import HubCard
from uiat.progress import print_message, print_result
from uiat.runs.run_folder import Weights

EXAMPLES = ("uiat export runs/mine --out handover", "uiat export runs/mine --onnx")


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of an export, to a folder or to the Hub."""

    weights: Weights = "best"
    """Weights of the best epoch on the validation split, or of the last epoch; the averaged ones where the run averages
    weights, unless `-raw`."""
    onnx: bool = False
    """Also write model.onnx, with class names and preprocessing as metadata; requires the package onnx."""
    license: str = "mit"
    """Licence of the weights, as the Hub names it; for the model card."""
    model: str = ""
    """The run's custom network, as `module:callable`; only code that is named here is imported."""
    data_dir: str | None = None
    """Folder of data sets; used only if the run has no record of its data."""

    def load(self, run: Path) -> LoadedRun:
        """Load the run to export."""
        return load_run(run, self.weights, self.data_dir, self.model)


@dataclass(frozen=True, kw_only=True)
class Export(ExportOptions):
    """Export a run's network to a folder: weights, model.py, example.py, card.json and README.md."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run's folder."""
    out: str = ""
    """Folder to write; empty: RUN/export. Only an earlier export is overwritten."""
    hub_card: bool = False
    """Also write the files of a model on the Hub: config.json, and README.md as a model card with metadata."""


def main(args: list[str]) -> int:
    """Run the command."""
    options = parse_options(Export, args, "uiat export RUN", EXAMPLES)
    loaded = options.load(Path(options.run))
    out = Path(options.out) if options.out else loaded.run.path / "export"
    if not options.out:
        loaded.run.check_links()
    hub = HubCard(options.license) if options.hub_card else None
    files = write_folder(loaded, out, onnx=options.onnx, hub=hub)
    print_result(f"{out}: {', '.join(files)}")
    print_notes(loaded)
    suggest("done; next:", "uiat", "report" if loaded.evaluations else "evaluate", loaded.run.path)
    return 0


def print_notes(loaded: LoadedRun) -> None:
    """Print notices on the accuracies in the card."""
    for note in loaded.notes:
        print_message(f"note: {note}")
