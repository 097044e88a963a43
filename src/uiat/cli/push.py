"""`uiat push RUN OWNER/NAME`: upload of a run's network to the Hub, with a model card."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from uiat.cli.export import ExportOptions, print_notes
from uiat.cli.options import parse_options, suggest
from uiat.errors import UserError
from uiat.export.exported_folder import FILES, write_folder
from uiat.export.model_card import HubCard
from uiat.runs import hub
from uiat.runs.saved import CONFIG, read_export

EXAMPLES = ("uiat push runs/mine me/robust-digits --private", "uiat push handover me/robust-digits")


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
    """Run the command."""
    options = parse_options(Push, args, "uiat push RUN OWNER/NAME", EXAMPLES)
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
        print_notes(loaded)
    print(f'{address}\nmodel = uiat.load("{options.name}")')
    suggest("done; next:", "uiat", "evaluate", options.name)
    return 0


def _upload(folder: Path, options: Push) -> str:
    return hub.upload(folder, options.name, FILES, private=options.private, message=options.message)
