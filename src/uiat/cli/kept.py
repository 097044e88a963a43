"""What a run was made with: modules of one's own, imported again by the commands that need its method."""

import os
import sys
from pathlib import Path

from uiat.config import AnyConfig
from uiat.engine.signals import STOP_FILE
from uiat.errors import UserError
from uiat.runs.folder import RunFolder
from uiat.serialize import UnknownMethod


def import_kept(run: RunFolder) -> None:
    """Import what a run names, and say so: only from where its maker had it, and never from the run's own folder.

    The folder may come from somebody else; what lies in it does not get to run.
    """
    for each in run.read_imports():
        if not Path(each.folder).is_absolute() or each.place.is_relative_to(run.path.resolve()):
            raise UserError(
                f"{run.config} names the import {each.name} in {each.folder!r}, which lies in the run or nowhere "
                "certain and is not imported: look at it, and name it yourself with --import."
            )
        # Under --processes the launcher has said it already.
        if os.environ.get("LOCAL_RANK", "0") == "0" and STOP_FILE not in os.environ:
            print(f"importing {each.name} from {each.folder}, as {run.config} says", file=sys.stderr)
        each.load()


def read_known(run: RunFolder) -> AnyConfig:
    """Return a run's configuration, whose method has to be known."""
    config = run.read_config()
    if isinstance(config.method, UnknownMethod):
        raise UserError(
            f"the method {config.method.saved['kind']!r} of {run.path} is not known here: "
            "name the module that registers it with --import."
        )
    return config
