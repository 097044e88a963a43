"""The configuration that a new run starts from: a recipe, a run, or a JSON file, and the flags that exchange a part."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from uiat import data, models, recipes
from uiat.cli.options import check_known, check_named, number_of, take
from uiat.config import AnyConfig, from_json
from uiat.data.custom import is_custom
from uiat.errors import UserError
from uiat.models.libraries import input_format
from uiat.paths import suggest_path, user_path
from uiat.recipes.radius import with_radius
from uiat.runs.identity import choose_data, find_data
from uiat.runs.run_folder import RunFolder, parse_imports, read_json
from uiat.runs.saved import choose_model

WITHIN = ("files", "config.json", "config")
"""Where published runs and result cards hold the configuration."""


def name_recipe(args: list[str]) -> tuple[str, list[str]]:
    """Return the recipe, run or file that the arguments begin with, or the default recipe; and the other arguments."""
    if args and not args[0].startswith("-"):
        return args[0], args[1:]
    named = take(args, ("--data",))[0].get("--data", "")
    from_user = named not in data.SOURCES and is_custom(named)
    return recipes.CUSTOM_DATA_RECIPE if from_user else recipes.DEFAULT_RECIPE, args


def first_config(start: str, args: list[str], *, imported: bool = False) -> tuple[str, AnyConfig, list[str]]:
    """Return a name for the run, the configuration of `start`, and the arguments that are not applied to it yet.

    Applied are `--data NAME`, `--model NAME` and `--eps E`, which change several fields. `imported` says that the user
    named modules to import.
    """
    chosen, rest = take(args, ("--data", "--model", "--eps"))
    given, path = {name: chosen.get(f"--{name}", "") for name in ("data", "model")}, user_path(start)
    if start not in recipes.RECIPES and (start.endswith(".json") or os.sep in start or os.path.exists(path)):
        config = _from_file(path, given, imported=imported)
        named = path.parent if path.name == "config.json" else path
        name = re.sub(r"-s\d+$", "", named.absolute().name.removesuffix(".json"))
    else:
        name, config = start, recipes.get_recipe(start)
        config = replace(config, model=models.get_model(given["model"])) if given["model"] else config
    if given["model"] and config.data.size is None:
        config = replace(config, data=replace(config.data, size=input_format(given["model"]).size))
    if given["data"]:
        config = replace(config, data=replace(config.data, name=given["data"]))
    if "--eps" in chosen:
        config = with_radius(config, number_of("--eps", chosen["--eps"]))
    return name, config, rest


def _from_file(path: Path, given: dict[str, str], *, imported: bool) -> AnyConfig:
    """Return the configuration in a run folder or a JSON file, with the network that is `given`.

    Code is imported only where the user names it.
    """
    run = RunFolder.open(path) if path.is_dir() else RunFolder(path.parent)
    file = run.config if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"there is no {file}: {suggest_path(file) or 'give a run folder, or a JSON configuration.'}")
    saved: Any = read_json(file)
    for key in WITHIN:
        saved = saved[key] if isinstance(saved, dict) and key in saved and "kind" not in saved else saved
    if not imported:
        check_named(file, parse_imports(saved, file))
    try:
        config = from_json(saved)
    except UserError as error:
        raise UserError(f"cannot read {file}: {error}") from None
    config = replace(config, model=choose_model(config.model, given["model"], file))
    check_known(config, file)
    name = choose_data(config.data.name, given["data"] or None, file)
    known = name == config.data.name and file == run.config and run.data.is_file()
    return replace(config, data=find_data(run, config.data)) if known else config
