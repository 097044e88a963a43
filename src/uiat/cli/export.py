"""`uiat export RUN` and `uiat push RUN OWNER/NAME`: a network as a folder that loads without uiat, and on the Hub."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from uiat.cli.options import parse_options, suggest
from uiat.errors import UserError
from uiat.export.exported_folder import FILES, write_folder
from uiat.export.loaded_run import LoadedRun, load_run
from uiat.export.model_card import HubCard
from uiat.progress import print_message, print_result
from uiat.runs import hub
from uiat.runs.run_folder import Weights
from uiat.runs.saved import CONFIG, read_export

EXPORT_EXAMPLES = ("uiat export runs/mine --out handover", "uiat export runs/mine --onnx")
PUSH_EXAMPLES = ("uiat push runs/mine me/robust-digits --private", "uiat push handover me/robust-digits")


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


@dataclass(frozen=True, kw_only=True)
class Push(ExportOptions):
    """Upload a run's network to the Hub, with a model card; requires huggingface_hub and a token."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run's folder, or an export with a model card (`uiat export --hub-card`), which is uploaded unchanged."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OWNER/NAME")]
    """The model on the Hub; it is created if it does not exist."""
    private: bool = False
    """Make a new model private."""
    message: str = "Upload with uiat push"
    """Message of the commit on the Hub."""


def main(args: list[str]) -> int:
    """Run `uiat export`."""
    options = parse_options(Export, args, "uiat export RUN", EXPORT_EXAMPLES)
    loaded = options.load(Path(options.run))
    out = Path(options.out) if options.out else loaded.run.path / "export"
    if not options.out:
        loaded.run.check_links()
    card = HubCard(options.license) if options.hub_card else None
    files = write_folder(loaded, out, onnx=options.onnx, hub=card)
    print_result(f"{out}: {', '.join(files)}")
    _print_notes(loaded)
    suggest("done; next:", "uiat", "report" if loaded.evaluations else "evaluate", loaded.run.path)
    return 0


def push(args: list[str]) -> int:
    """Run `uiat push`."""
    options = parse_options(Push, args, "uiat push RUN OWNER/NAME", PUSH_EXAMPLES)
    hub.check_upload(options.name)
    source = Path(options.run)
    if source.is_dir() and read_export(source) is not None:
        if not (source / CONFIG).is_file():
            raise UserError(f"{source} is an export without a model card: give its run, or export with --hub-card.")
        address = _upload(source, options)
    else:
        loaded = options.load(source)
        with tempfile.TemporaryDirectory() as folder:
            write_folder(loaded, Path(folder), onnx=options.onnx, hub=HubCard(options.license, options.name))
            address = _upload(Path(folder), options)
        _print_notes(loaded)
    print(f'{address}\nmodel = uiat.load("{options.name}")')
    suggest("done; next:", "uiat", "evaluate", options.name)
    return 0


def _print_notes(loaded: LoadedRun) -> None:
    """Print notices on the accuracies in the card."""
    for note in loaded.notes:
        print_message(f"note: {note}")


def _upload(folder: Path, options: Push) -> str:
    return hub.upload(folder, options.name, FILES, private=options.private, message=options.message)
