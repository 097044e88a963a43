"""`uiat push RUN OWNER/NAME`: a run's network on the Hub, with a model card."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from uiat.cli.options import REGISTRY, suggest
from uiat.errors import UserError
from uiat.export.exported_folder import FILES, HubCard, write_folder
from uiat.export.loaded_run import load_run
from uiat.progress import PipeSafeConsole
from uiat.runs import hub
from uiat.runs.run_folder import Weights
from uiat.runs.saved import CONFIG, read_export


@dataclass(frozen=True)
class Push:
    """Put a run's network on the Hub as `uiat export --hub-card` writes it; this needs huggingface_hub and a token."""

    run: tyro.conf.Positional[str]
    """The run's folder, or one that `uiat export --hub-card` wrote, which is uploaded as it is."""
    name: tyro.conf.Positional[str]
    """OWNER/NAME: the model on the Hub; it is made if it is not there."""
    weights: Weights = "best"
    """The weights of the best epoch on the validation split, or of the last epoch; averaged where the run averages,
    unless `-raw`."""
    onnx: bool = False
    """Upload model.onnx, too; this needs the package onnx."""
    license: str = "mit"
    """The licence of the weights, as the Hub names it."""
    private: bool = False
    """Make the model private, if it is a new one."""
    message: str = "Upload with uiat push"
    """The message of the commit."""
    model: str = ""
    """The run's network, as `module:callable`, where it is a custom one: only code that is named here is imported."""
    data_dir: str | None = None
    """Where data sets are looked for; only a run that does not say what its data was needs it again."""


def main(args: list[str]) -> int:
    """Run the command."""
    with REGISTRY:
        options = tyro.cli(Push, args=args, prog="uiat push", description=Push.__doc__)
    hub.check_upload(options.name)
    source = Path(options.run)
    if source.is_dir() and read_export(source) is not None:
        if not (source / CONFIG).is_file():
            raise UserError(f"{source} is an export without a model card: give its run, or export with --hub-card.")
        address = _upload(source, options)
    else:
        loaded = load_run(source, options.weights, options.data_dir, options.model)
        with tempfile.TemporaryDirectory() as folder:
            write_folder(loaded, Path(folder), onnx=options.onnx, hub=HubCard(options.license, options.name))
            address = _upload(Path(folder), options)
        for note in loaded.notes:
            PipeSafeConsole(stderr=True, highlight=False).print(f"note: {note}", markup=False, soft_wrap=True)
    print(f'{address}\nmodel = uiat.load("{options.name}")')
    suggest("done; next:", "uiat", "evaluate", options.name)
    return 0


def _upload(folder: Path, options: Push) -> str:
    return hub.upload(folder, options.name, FILES, private=options.private, message=options.message)
