"""`uiat train [RECIPE] [--overrides]`, and `uiat train --resume RUN`."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, count
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Generic, Literal

import torch
import tyro

from uiat import data, models, recipes
from uiat.cli.dry_run import dry_run
from uiat.cli.flags import brief, flags_of, full_help, wants_brief
from uiat.cli.launch import cores, launch, stopped
from uiat.cli.options import REGISTRY, check_imports, parse_number, read_known, suggest, take, too_long, with_radius
from uiat.config import AnyConfig, Config, MethodT, ModelT, check
from uiat.data.custom import is_callable, is_custom
from uiat.distributed import is_main, launched, local_device, pick_device, process_group, restarted, wait
from uiat.engine.callbacks import open_callback
from uiat.engine.loop import dry_build, train
from uiat.engine.setup import build_loader
from uiat.engine.signals import StopSignal
from uiat.errors import UserError
from uiat.models import Imported
from uiat.plugins import Import, import_words
from uiat.progress import PipeSafeConsole
from uiat.runs.checkpoint import known_identity
from uiat.runs.identity import check_same, choose_data, find_data, find_network, identity, keep_identity, known_data
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import check_model, check_network_size

USAGE = "uiat train [RECIPE]"
SHORT = {"--precision": "--train.precision", "--compile": "--train.compile", "--on-nonfinite": "--train.on-nonfinite"}
"""Flags that may be given without their part's name."""
ABOUT = (
    "Train a robust classifier: a recipe (see `uiat list`), and what you change of it. "
    "--data NAME, --model NAME and --eps E come first: E scales every length of the attack and the inverse."
)
BRIEF = (
    *("--data.name", "--out", "--resume", "--seed", "--method.lam", "--method.attack.eps", "--train.epochs"),
    *("--train.batch-size", "--train.schedule.lr", "--train.precision", "--device", "--processes", "--dry-run"),
)
"""The flags of the short help, where a recipe has them."""
EXAMPLES = ("uiat train digits-resnet8-uiat --train.epochs 30 --out runs/mine", "uiat train --resume runs/mine")
FEW_STEPS = 30
"""A run of fewer steps gets a note: the first BatchNorm statistics would still weigh 5 % (0.9 to the 28th)."""


@dataclass(frozen=True)
class LaunchOptions:
    """Where a run happens; none of it changes the result."""

    out: str = ""
    """The run's folder; empty: runs/RECIPE-sSEED."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto is the GPU if there is one."""
    data_dir: str | None = None
    """Where data sets are looked for and downloaded to; else $UIAT_DATA, else a cache folder."""
    processes: int = 1
    """Processes of this machine that share the run, at most one a core or GPU; each batch is divided between them."""
    restarts: int = 3
    """With several processes: how often one that died is started again, from the last checkpoint."""
    log: str = ""
    """Where numbers and pictures go beside metrics.jsonl: `tensorboard`, or `MODULE:FUNCTION` of one's own."""


@dataclass(frozen=True)
class NewRun(LaunchOptions):
    """Where a run that is begun happens."""

    dry_run: bool = False
    """Make nothing: print the configuration, and what the run takes in steps, passes, memory and time."""


@dataclass(frozen=True)
class Resume(LaunchOptions):
    """Go on with a run that was stopped or killed."""

    resume: str = ""
    """The folder of a run that was stopped or killed: go on with it."""
    data: str = ""
    """Where custom data is now, if it was moved, and always its `module:callable`; the images must be the same."""
    model: str = ""
    """The run's network, as `module:callable`, where it is a custom one: only code that is named here is imported."""
    on_nonfinite: Literal["stop", "skip"] | None = None
    """Change what happens when a loss or a gradient is not finite; else it stays as the run was begun."""


@dataclass(frozen=True)
class Command(Generic[ModelT, MethodT]):
    """What `uiat train` takes."""

    recipe: Annotated[Config[ModelT, MethodT], tyro.conf.arg(name="")]
    where: Annotated[NewRun, tyro.conf.arg(name="")]


def main(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Run the command; a run keeps the imports."""
    resume = any(a.split("=")[0] == "--resume" for a in args)
    return resume_run(args, imports) if resume else new_run(args, imports)


def new_run(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Begin a run: the recipe first, then what the flags change."""
    name, rest = name_recipe(args)
    rest = [SHORT.get(flag := word.split("=")[0], flag) + word[len(flag) :] for word in rest]
    config, rest = _choose(recipes.get_recipe(name), rest)
    if wants_brief(rest):
        print(short_help(config))
        return 0
    config, where = parse_recipe(config, rest)
    check(config)
    notes = [too_long(config.method, rest)]
    device = local_device(pick_device(where.device))
    check_processes(where.processes, where.restarts, device)
    folder = Path("runs") / f"{name}-s{config.seed}"
    if where.dry_run:
        dry_run(config, RunFolder(where.out or _free(folder)), where.data_dir, device)
        again = [word for word in args if word != "--dry-run"]
        suggest("done; next:", "uiat", "train", *again, *import_words(imports))
        return 0
    with process_group(device):
        # Under torchrun the name is fixed: a process that is started again must find the run of the one that died.
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
                PipeSafeConsole(stderr=True, highlight=False).print(f"note: {note}", markup=False, soft_wrap=True)
            keep_identity(run, splits, config)
            return _train(config, run, splits, device, where, imports)


def check_processes(processes: int, restarts: int, device: torch.device) -> None:
    """Refuse numbers that cannot be meant, before there is a run folder."""
    for flag, value, least in (("processes", processes, 1), ("restarts", restarts, 0)):
        if value < least:
            raise UserError(f"--{flag} is {value}: give at least {least}.")
    most, kind = (torch.cuda.device_count(), "GPU(s)") if device.type == "cuda" else (cores(), "core(s)")
    if processes > most:
        raise UserError(f"--processes is {processes}, and there are {most} {kind} here: give at most {most}.")


def _few_steps(config: AnyConfig, splits: data.Splits) -> str:
    """Return one line where a run is too short to learn anything, as one on a few images in large batches may be."""
    epochs = config.train.epochs
    steps = build_loader(config, splits.train, torch.device("cpu"), splits.generated).steps_per_epoch
    if epochs * steps >= FEW_STEPS:
        return ""
    return (
        f"{epochs * steps} steps in all ({steps} an epoch) are few to learn from: give smaller batches "
        f"(--train.batch-size) or more epochs (--train.epochs {-(-FEW_STEPS // steps)})"
    )


def name_recipe(args: list[str]) -> tuple[str, list[str]]:
    """Return the recipe that the words begin with, or the default for the data they name; and the other words."""
    if args and not args[0].startswith("-"):
        return args[0], args[1:]
    named = take(args, ("--data",))[0].get("--data", "")
    from_user = named not in data.SOURCES and is_custom(named)
    return recipes.CUSTOM_DATA_RECIPE if from_user else recipes.DEFAULT_RECIPE, args


def resume_run(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Resume a run from its configuration; imports that are given replace those it was made with."""
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
    """Load the data, the main process first: a download happens once."""
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
    """Return the flags that name a run's data and network again: no code is imported that only the run names."""
    name = config.data.name
    images = where.data if isinstance(where, Resume) else name if is_callable(name) else ""
    network = ["--model", config.model.target] if isinstance(config.model, Imported) else []
    return [*(["--data", images] if images else []), *network]


def short_help(config: AnyConfig) -> str:
    """Return the help of one screen, with the recipe's defaults."""
    flags = {flag.name: flag for flag in (*flags_of(Resume), *flags_of(Command(config, NewRun())))}
    flags["--data.name"] = replace(flags["--data.name"], name="--data")
    return brief(f"{USAGE} [FLAGS]", ABOUT, (flags[name] for name in BRIEF if name in flags), EXAMPLES)


def parse_recipe(config: AnyConfig, args: list[str]) -> tuple[AnyConfig, NewRun]:
    """Apply the flags to a recipe; the command line follows the recipe's own objects."""
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
    return command.recipe, command.where


def _choose(config: AnyConfig, args: list[str]) -> tuple[AnyConfig, list[str]]:
    """Apply `--data NAME`, `--model NAME` and `--eps E`, which change whole parts, before flags of single fields."""
    chosen, rest = take(args, ("--data", "--model", "--eps"))
    if "--data" in chosen:
        config = replace(config, data=replace(config.data, name=chosen["--data"]))
    if "--model" in chosen:
        config = replace(config, model=models.get_model(chosen["--model"]))
    if "--eps" in chosen:
        config = with_radius(config, _number("--eps", chosen["--eps"]))
    return config, rest


def _number(flag: str, text: str) -> float:
    try:
        value = parse_number(text)
    except ValueError as error:
        raise UserError(f"{flag}: {error}.") from None
    if not isfinite(value) or value < 0:
        raise UserError(f"{flag} is {value}: give at least 0.")
    return value


def _free(path: Path) -> Path:
    """Return the path, or the first of path-2, path-3 … that is free."""
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
            raise UserError("the processes of this run ended before its first step: what they said is above.")
        return code
    console.print(f"run folder: {run.path}", markup=False, soft_wrap=True)
    callback = open_callback(where.log, run, config) if is_main() else None
    with StopSignal() as stop:
        finished = train(config, run, splits, device, callback, stop)
    if finished:
        suggest("done; next:", "uiat", "evaluate", run.path, *_named(where, config))
        return 0
    suggest("go on with:", "uiat", "train", "--resume", run.path, *_named(where, config), *import_words(imports))
    return stopped(stop)
