"""`uiat train [RECIPE] [FLAGS]` and `uiat train --resume RUN`."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Generic, Literal

import torch
import tyro

from uiat import data, models, recipes
from uiat.cli.dry_run import dry_run
from uiat.cli.flags import brief, flags_of, full_help, wants_brief
from uiat.cli.launch import cores, launch, stopped
from uiat.cli.options import (
    REGISTRY,
    check_imports,
    note_large_steps,
    number_of,
    read_known,
    read_statistics,
    suggest,
    take,
)
from uiat.config import AnyConfig, Config, MethodT, ModelT, check
from uiat.data.custom import is_callable, is_custom
from uiat.distributed import is_main, launched, local_device, pick_device, process_group, restarted, wait
from uiat.engine.callbacks import open_callback
from uiat.engine.loop import dry_build, train
from uiat.engine.setup import build_loader
from uiat.engine.signals import StopSignal
from uiat.errors import UserError
from uiat.models import Imported
from uiat.models.libraries import input_format
from uiat.models.normalization import with_statistics
from uiat.plugins import Import, import_words
from uiat.progress import PipeSafeConsole, print_message
from uiat.recipes.radius import with_radius
from uiat.runs.checkpoint import known_identity
from uiat.runs.identity import check_same, choose_data, find_data, find_network, identity, keep_identity, known_data
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import check_model, check_network_size

USAGE = "uiat train [RECIPE]"
SHORT = {"--precision": "--train.precision", "--compile": "--train.compile", "--on-nonfinite": "--train.on-nonfinite"}
"""Flags that may be given without the name of their part."""
ABOUT = (
    "Train a robust classifier from a recipe (see `uiat list`) with your changes. "
    "--data NAME, --model NAME and --eps E are applied first; E scales all radii and step sizes of the method."
)
BRIEF = (
    *("--data.name", "--out", "--resume", "--seed", "--method.lam", "--method.attack.eps", "--train.epochs"),
    *("--train.batch-size", "--train.schedule.lr", "--train.precision", "--device", "--processes", "--dry-run"),
)
"""Flags of the short help, if the recipe has them."""
EXAMPLES = ("uiat train digits-resnet8-uiat --train.epochs 30 --out runs/mine", "uiat train --resume runs/mine")
FEW_STEPS = 30
"""Runs with fewer steps get a note: the initial BatchNorm statistics would still weigh 5 % (0.9 to the 28th)."""


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
    dry_run: bool = False
    """Create nothing; print the configuration, and estimates of steps, passes, memory and time."""


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


@dataclass(frozen=True)
class Command(Generic[ModelT, MethodT]):
    """Options of `uiat train`."""

    recipe: Annotated[Config[ModelT, MethodT], tyro.conf.arg(name="")]
    where: Annotated[NewRun, tyro.conf.arg(name="")]


def main(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Run the command; the run records the imports."""
    resume = any(a.split("=")[0] == "--resume" for a in args)
    return resume_run(args, imports) if resume else new_run(args, imports)


def new_run(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Start a run from a recipe and the flags that change it."""
    name, rest = name_recipe(args)
    rest = [SHORT.get(flag := word.split("=")[0], flag) + word[len(flag) :] for word in rest]
    config, rest = _choose(recipes.get_recipe(name), rest)
    if wants_brief(rest):
        print(short_help(config))
        return 0
    config, where = parse_recipe(config, rest)
    check(config)
    notes = [note_large_steps(config.method, rest), _resized(config)]
    device = local_device(pick_device(where.device))
    check_processes(where.processes, where.restarts, device)
    folder = Path("runs") / f"{name}-s{config.seed}"
    if where.dry_run:
        dry_run(config, RunFolder(where.out or _free(folder)), where.data_dir, device)
        again = [word for word in args if word != "--dry-run"]
        suggest("done; next:", "uiat", "train", *again, *import_words(imports))
        return 0
    with process_group(device):
        # Under torchrun the name is fixed: a restarted worker must find the run of the one that crashed.
        out = where.out or str(folder if launched() > 1 else _free(folder))
        if restarted() and RunFolder(out).config.exists():
            return resume_run(["--resume", out, *_flags(where, config)], imports)
        if is_main():
            RunFolder(out).check_free()
        splits = _load(config, where)
        dry_build(config, splits, device)
        notes += [data.empty_classes(splits, config.data.name), _few_steps(config, splits)]
        with RunFolder.begin(out, config, imports) if is_main() else nullcontext(RunFolder(out)) as run:
            for note in filter(None, notes if is_main() else []):
                print_message(f"note: {note}")
            keep_identity(run, splits, config)
            return _train(config, run, splits, device, where, imports)


def check_processes(processes: int, restarts: int, device: torch.device) -> None:
    """Raise a `UserError` for impossible numbers of processes or restarts, before a run folder is created."""
    for flag, value, least in (("processes", processes, 1), ("restarts", restarts, 0)):
        if value < least:
            raise UserError(f"--{flag} is {value}: give at least {least}.")
    most, kind = (torch.cuda.device_count(), "GPU(s)") if device.type == "cuda" else (cores(), "core(s)")
    if processes > most:
        raise UserError(f"--processes is {processes}, and there are {most} {kind} here: give at most {most}.")


def _resized(config: AnyConfig) -> str:
    """Return a note if the images have the size for which a library configures the network; else ""."""
    target = config.model.target if isinstance(config.model, Imported) else ""
    size = input_format(target).size
    if size is None or size != config.data.size:
        return ""
    shown = "×".join(map(str, size))
    return f"images are resized to {shown}, for which {target} is configured; --data.size changes this"


def _few_steps(config: AnyConfig, splits: data.Splits) -> str:
    """Return a note if a run has too few steps to learn anything, as on a few images in large batches."""
    epochs = config.train.epochs
    steps = build_loader(config, splits.train, torch.device("cpu"), splits.generated).steps_per_epoch
    if epochs * steps >= FEW_STEPS:
        return ""
    return (
        f"{epochs * steps} steps in total ({steps} per epoch) are few to learn from: give smaller batches "
        f"(--train.batch-size) or more epochs (--train.epochs {-(-FEW_STEPS // steps)})"
    )


def name_recipe(args: list[str]) -> tuple[str, list[str]]:
    """Return the recipe that the arguments begin with, or the default for their data; and the other arguments."""
    if args and not args[0].startswith("-"):
        return args[0], args[1:]
    named = take(args, ("--data",))[0].get("--data", "")
    from_user = named not in data.SOURCES and is_custom(named)
    return recipes.CUSTOM_DATA_RECIPE if from_user else recipes.DEFAULT_RECIPE, args


def resume_run(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Resume a run from its configuration; given imports replace those it was made with."""
    with REGISTRY:
        chosen = tyro.cli(Resume, args=args, prog="uiat train --resume RUN", description=Resume.__doc__)
    if chosen.out:
        raise UserError("--out cannot be given with --resume: the run stays in its own folder.")
    run = RunFolder.open(chosen.resume)
    if not imports:
        check_imports(run)
    config = read_known(run)
    check_model(config.model, chosen.model, run.path)
    check(config)
    if chosen.on_nonfinite is not None:
        config = replace(config, train=replace(config.train, on_nonfinite=chosen.on_nonfinite))
    device = local_device(pick_device(chosen.device))
    check_processes(chosen.processes, chosen.restarts, device)
    with process_group(device):
        find_network(run, config.model)
        images = replace(config.data, name=choose_data(config.data.name, chosen.data or None, run.path))
        splits = _load(replace(config, data=find_data(run, images)), chosen)
        check_network_size(run, config.model, splits.spec)
        check_same(run.path, known_data(run) or known_identity(run), identity(splits), images.name)
        keep_identity(run, splits, config, moved=chosen.data)
        if (chosen.on_nonfinite is not None or imports) and is_main():
            run.change_config(config, imports or run.read_imports())
        wait()
        return _train(config, run, splits, device, chosen, imports)


def _load(config: AnyConfig, where: LaunchOptions) -> data.Splits:
    """Load the data, in the main process first, so that it is downloaded once."""
    if not is_main():
        wait()
    splits = data.load_splits(config.data, where.data_dir, training=True)
    if is_main():
        wait()
    return splits


def _flags(where: LaunchOptions, config: AnyConfig) -> list[str]:
    log = ["--log", where.log] if where.log else []
    folder = ["--data-dir", where.data_dir] if where.data_dir else []
    return ["--device", where.device, *folder, *_named(where, config), *log]


def _named(where: LaunchOptions, config: AnyConfig) -> list[str]:
    """Return the flags that name a run's custom data and network: code that only the run names is not imported."""
    name = config.data.name
    images = where.data if isinstance(where, Resume) else name if is_callable(name) else ""
    network = ["--model", config.model.target] if isinstance(config.model, Imported) else []
    return [*(["--data", images] if images else []), *network]


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


def _choose(config: AnyConfig, args: list[str]) -> tuple[AnyConfig, list[str]]:
    """Apply `--data NAME`, `--model NAME` and `--eps E`, which change several fields; return the other arguments."""
    chosen, rest = take(args, ("--data", "--model", "--eps"))
    if "--data" in chosen:
        config = replace(config, data=replace(config.data, name=chosen["--data"]))
    if "--model" in chosen:
        config = replace(config, model=models.get_model(chosen["--model"]))
        if config.data.size is None:
            config = replace(config, data=replace(config.data, size=input_format(chosen["--model"]).size))
    if "--eps" in chosen:
        config = with_radius(config, number_of("--eps", chosen["--eps"]))
    return config, rest


def _free(path: Path) -> Path:
    """Return the path, or the first of path-2, path-3 … that does not exist."""
    others = (path.with_name(f"{path.name}-{k}") for k in count(2))
    return next(p for p in chain([path], others) if not p.exists())


def _train(
    config: AnyConfig,
    run: RunFolder,
    splits: data.Splits,
    device: torch.device,
    where: LaunchOptions,
    imports: tuple[Import, ...],
) -> int:
    console = PipeSafeConsole(highlight=False, quiet=not is_main())
    if where.processes > 1 and launched() == 1:
        flags = [*_flags(where, config), *import_words(imports)]
        code = launch(run.path, where.processes, where.restarts, flags)
        if code == 1 and not (run.has_trained() or RunFolder(run.helper).has_trained()):
            raise UserError("all workers exited before the first step; see their output above.")
        return code
    console.print(f"run folder: {run.path}", markup=False, soft_wrap=True)
    callback = open_callback(where.log, run, config) if is_main() else None
    with StopSignal() as stop:
        finished = train(config, run, splits, device, callback, stop)
    if finished:
        suggest("done; next:", "uiat", "evaluate", run.path, *_named(where, config))
        return 0
    suggest("resume with:", "uiat", "train", "--resume", run.path, *_named(where, config), *import_words(imports))
    return stopped(stop)
