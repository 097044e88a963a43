"""The arguments of `uiat train`: options, short help, and the recipe, run or file that a new run starts from."""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Literal

import tyro

from uiat import data, models, recipes
from uiat.cli.flags import brief, flags_of
from uiat.cli.options import check_imports, check_known, number_of, parse_options, run_parser, take
from uiat.cli.subject_options import read_statistics
from uiat.config import AnyConfig, Config, MethodT, ModelT
from uiat.config_json import from_json
from uiat.data.custom import is_custom
from uiat.errors import UserError
from uiat.models.libraries import input_format
from uiat.models.wrappers import with_statistics
from uiat.paths import suggest_path, user_path
from uiat.recipes.variants import with_radius
from uiat.runs.identity import choose_data, find_data
from uiat.runs.records import parse_imports
from uiat.runs.run_folder import RunFolder, read_json
from uiat.runs.saved import choose_model

USAGE = "uiat train [RECIPE]"
SHORT = {"--precision": "--train.precision", "--compile": "--train.compile", "--on-nonfinite": "--train.on-nonfinite"}
"""Flags that may be given without the name of their part."""
ABOUT = (
    "Train a robust classifier with your changes to a recipe (see `uiat list`), or to the settings of a run or a JSON "
    "file. --data NAME, --model NAME and --eps E are applied first; E scales all radii and step sizes of the method."
)
BRIEF = (
    *("--data.name", "--out", "--resume", "--seed", "--seeds", "--method.lam", "--method.attack.eps", "--train.epochs"),
    *("--train.batch-size", "--train.schedule.lr", "--train.precision", "--device", "--processes", "--dry-run"),
)
"""Flags of the short help, if the recipe has them."""
WITHIN = ("files", "config.json", "config")
"""Where published runs and result cards hold the configuration."""
EXAMPLES = ("uiat train digits-resnet8-uiat --train.epochs 30 --out runs/mine", "uiat train --resume runs/mine")
RESUME_BRIEF = (
    *("--resume", "--train.epochs", "--data", "--model", "--device", "--data-dir", "--processes", "--restarts"),
    *("--log", "--on-nonfinite"),
)
"""Flags of the short help of a resume: all but --out, since the run stays in its folder."""
RESUME_EXAMPLES = ("uiat train --resume runs/mine", "uiat train --resume runs/mine --train.epochs 40")


@dataclass(frozen=True)
class LaunchOptions:
    """Where and how a run is executed; nothing here changes its result."""

    out: str = ""
    """Run folder; empty: runs/RECIPE-sSEED."""
    device: str = "auto"
    """Device: cpu, cuda, cuda:1 …; auto: the GPU if there is one."""
    data_dir: str | None = None
    """Folder that data sets are read from and downloaded to; else $UIAT_DATA, else a cache folder."""
    processes: int = 1
    """Worker processes on this machine, at most one per core or GPU; each batch is divided between them."""
    restarts: int = 3
    """Maximum number of restarts of a crashed worker, from the last checkpoint."""
    log: str = ""
    """Logger in addition to metrics.jsonl: `tensorboard`, or a custom `MODULE:FUNCTION`."""


@dataclass(frozen=True)
class NewRun(LaunchOptions):
    """How a new run is executed."""

    mean: tuple[str, ...] = ()
    """Normalise images inside the network, as the weights of --init expect: the mean of each channel of images in
    [0, 1], or a name (cifar10, cifar100, svhn, imagenet), which also sets --std."""
    std: tuple[str, ...] = ()
    """The standard deviation of each channel, or a name."""
    seeds: tuple[int, ...] = ()
    """Train a run for each of these seeds, in OUT-sSEED; the same command again resumes and skips finished ones."""
    dry_run: bool = False
    """Create nothing; print the configuration, and estimates of steps, passes, memory and time."""


@dataclass(frozen=True)
class Extension:
    """Fields of the training options that a resumed run may change."""

    epochs: int | None = None
    """More epochs than the run has, if its learning rate so far does not depend on their number."""


@dataclass(frozen=True)
class Resume(LaunchOptions):
    """Resume a run that was stopped or killed."""

    resume: str = ""
    """Resume the run in this folder."""
    data: str = ""
    """Custom data: its new path if it was moved, or its `module:callable` (always); the images must be the same."""
    model: str = ""
    """The run's custom network, as `module:callable`; only code that is named here is imported."""
    on_nonfinite: Literal["stop", "skip"] | None = None
    """New policy for a loss or a gradient that is not finite; else the run's own."""
    train: Extension = Extension()


@dataclass(frozen=True)
class Command(Generic[ModelT, MethodT]):
    """Options of `uiat train`."""

    recipe: Annotated[Config[ModelT, MethodT], tyro.conf.arg(name="")]
    where: Annotated[NewRun, tyro.conf.arg(name="")]


def short_help(config: AnyConfig) -> str:
    """Return the short help, with the recipe's defaults."""
    flags = {flag.name: flag for flag in (*flags_of(Resume), *flags_of(Command(config, NewRun())))}
    flags["--data.name"] = replace(flags["--data.name"], name="--data")
    return brief(f"{USAGE} [FLAGS]", ABOUT, (flags[name] for name in BRIEF if name in flags), EXAMPLES)


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
        check_imports(file, parse_imports(saved, file))
    try:
        config = from_json(saved)
    except UserError as error:
        raise UserError(f"cannot read {file}: {error}") from None
    config = replace(config, model=choose_model(config.model, given["model"], file))
    check_known(config, file)
    name = choose_data(config.data.name, given["data"] or None, file)
    known = name == config.data.name and file == run.config and run.data.is_file()
    return replace(config, data=find_data(run, config.data)) if known else config


def parse_recipe(config: AnyConfig, args: list[str]) -> tuple[AnyConfig, NewRun]:
    """Apply the flags to a recipe; the parser follows the classes of its model and method."""
    exact: Any = Command[type(config.model), type(config.method)]  # type: ignore[misc]
    command: Command[Any, Any] = run_parser(exact, args, USAGE, ABOUT, default=Command(config, NewRun()))
    config, where = command.recipe, command.where
    if (given := read_statistics(where.mean, where.std)) is not None:
        config = replace(config, model=with_statistics(config.model, *given))
    return config, where


def parse_resume(args: list[str]) -> Resume:
    """Parse the arguments of a resume, or print its short help and exit."""
    return parse_options(Resume, args, "uiat train --resume RUN", RESUME_EXAMPLES, most_used=RESUME_BRIEF)
