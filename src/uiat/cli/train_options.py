"""The options of `uiat train`, their parser and the short help."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Generic, Literal

import tyro

from uiat.cli.flags import brief, flags_of, full_help
from uiat.cli.options import REGISTRY, parse_options, read_statistics
from uiat.config import AnyConfig, Config, MethodT, ModelT
from uiat.models.normalization import with_statistics

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


def parse_recipe(config: AnyConfig, args: list[str]) -> tuple[AnyConfig, NewRun]:
    """Apply the flags to a recipe; the parser follows the classes of its model and method."""
    exact: Any = Command[type(config.model), type(config.method)]  # type: ignore[misc]
    with REGISTRY:
        command: Command[Any, Any] = tyro.cli(
            exact,
            default=Command(config, NewRun()),
            args=full_help(args),
            prog=USAGE,
            description=ABOUT,
            config=(tyro.conf.AvoidSubcommands,),
        )
    config, where = command.recipe, command.where
    if (given := read_statistics(where.mean, where.std)) is not None:
        config = replace(config, model=with_statistics(config.model, *given))
    return config, where


def parse_resume(args: list[str]) -> Resume:
    """Parse the arguments of a resume, or print its short help and exit."""
    return parse_options(Resume, args, "uiat train --resume RUN", RESUME_EXAMPLES, most_used=RESUME_BRIEF)
