"""Where the files of one's own that a run uses lay when it was begun: their paths may be relative to another folder."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from uiat.config import AnyConfig
from uiat.data import SOURCES, own
from uiat.data.config import DataConfig
from uiat.data.files import user_path
from uiat.errors import UserError
from uiat.models import Imported, ModelConfig
from uiat.runs.folder import RunFolder, read_json


def places(config: AnyConfig) -> dict[str, str]:
    """Return the absolute paths of a configuration's own data, and of the file that defines its own network."""
    data = config.data
    given = {"name": data.name, "test": data.test, "generated": data.generated.file}
    found = {part: str(user_path(path).absolute()) for part, path in given.items() if _is_own(path)}
    if isinstance(config.model, Imported):
        module = sys.modules.get(config.model.target.partition(":")[0])
        found["model"] = str(getattr(module, "__file__", None) or Path.cwd())
    return found


def _is_own(path: str) -> bool:
    return path not in SOURCES and own.is_path(path) and os.path.exists(user_path(path))


def find_data(run: RunFolder, data: DataConfig) -> DataConfig:
    """Return the data with paths that lead to it from here: as they are given, else as they were when the run began.

    A test file that is in neither place is looked for beside the data.
    """
    config, known = run.read_config().data, known_places(run)
    if data.name == config.name:
        data = replace(data, name=_find(run, data.name, [known.get("name")]))
    if data.test and data.test == config.test:
        beside = user_path(data.name).with_name(Path(data.test).name)
        data = replace(data, test=_find(run, data.test, [known.get("test"), str(beside)]))
    kept, file = known.get("generated"), user_path(data.generated.file)
    if kept is not None and data.generated == config.generated and not os.path.exists(file) and os.path.exists(kept):
        data = replace(data, generated=replace(data.generated, file=kept))
    return data


def _find(run: RunFolder, given: str, others: list[str | None]) -> str:
    places = [given, *filter(None, others)]
    found = next((place for place in places if own.is_callable(place) or os.path.exists(user_path(place))), None)
    if found is None and others[0] is not None:
        raise UserError(
            f"there is neither {' nor '.join(dict.fromkeys(places))}, where the data of {run.path} was: "
            "say where it is with --data PATH."
        )
    return found or given


def find_network(run: RunFolder, model: ModelConfig) -> None:
    """See that a network of one's own can be imported from here, or say where it was when the run was begun."""
    if not isinstance(model, Imported):
        return
    try:
        model.find()
    except UserError as error:
        kept = known_places(run).get("model")
        if kept is None:
            raise
        raise UserError(f"{str(error).rstrip('.')}; when {run.path} was begun, it was {kept}.") from None


def known_places(run: RunFolder) -> dict[str, str]:
    """Return what data.json says of the places; nothing of a run that an earlier version began."""
    found: Any = read_json(run.data) if run.data.exists() else {}
    kept = found.get("places") if isinstance(found, dict) else None
    return {str(part): str(path) for part, path in kept.items()} if isinstance(kept, dict) else {}
