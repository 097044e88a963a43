"""`uiat train [RECIPE|RUN|FILE] [FLAGS]` and `uiat train --resume RUN`."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

import torch

from uiat import data
from uiat.cli.dry_run import dry_run
from uiat.cli.flags import wants_brief
from uiat.cli.launch import cores, launch, stopped
from uiat.cli.options import check_counts, check_imports, read_known, suggest
from uiat.cli.train_notes import note_few_steps, note_large_steps, note_resized
from uiat.cli.train_options import (
    SHORT,
    LaunchOptions,
    NewRun,
    Resume,
    first_config,
    name_recipe,
    parse_recipe,
    parse_resume,
    short_help,
)
from uiat.config import AnyConfig, check
from uiat.data.custom import is_callable
from uiat.distributed import is_main, launched, local_device, pick_device, process_group, restarted, wait
from uiat.engine.callbacks import open_callback
from uiat.engine.loop import dry_build, train
from uiat.engine.setup import large_rate
from uiat.engine.signals import StopSignal
from uiat.errors import UserError
from uiat.models import Imported, InMemory
from uiat.plugins import Import, import_words
from uiat.progress import print_message, print_result
from uiat.runs.checkpoint import known_identity
from uiat.runs.identity import check_same, choose_data, find_data, find_network, identity, keep_identity
from uiat.runs.provenance import config_differences, extended
from uiat.runs.run_folder import RunFolder
from uiat.runs.saved import check_model, check_network_size


def main(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Run the command; the run records the imports."""
    resume = any(a.split("=")[0] == "--resume" for a in args)
    return resume_run(args, imports) if resume else new_run(args, imports)


def new_run(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Start a run, or one for each seed, from a recipe, a run or a file, and the flags that change it."""
    start, rest = name_recipe(args)
    rest = [SHORT.get(flag := word.split("=")[0], flag) + word[len(flag) :] for word in rest]
    name, config, rest = first_config(start, rest, imported=bool(imports))
    if wants_brief(rest):
        print(short_help(config))
        return 0
    config, where = parse_recipe(config, rest)
    check(config)
    notes = [note_large_steps(config.method, rest), large_rate(config), note_resized(config)]
    device = local_device(pick_device(where.device))
    check_processes(where, device)
    base = Path("runs") / name
    flags = {word.split("=")[0] for word in rest}
    if {"--seed", "--seeds"} <= flags:
        raise UserError("--seed and --seeds exclude each other: give one of them.")
    if "--seeds" in flags and not where.seeds:
        raise UserError("--seeds has no number: give at least one seed, such as --seeds 0 1 2.")
    if where.dry_run:
        config = replace(config, seed=where.seeds[0]) if where.seeds else config
        dry_run(config, RunFolder(where.out or _free(Path(f"{base}-s{config.seed}"))), where.data_dir, device)
        again = [word for word in args if word != "--dry-run"]
        suggest("done; next:", "uiat", "train", *again, *import_words(imports))
        return 0
    if where.seeds:
        return _each_seed(config, where, base, notes, imports)
    # Under torchrun the name is fixed: a restarted worker must find the run of the one that crashed.
    folder = Path(f"{base}-s{config.seed}")
    return _begin(config, where, where.out or str(folder if launched() > 1 else _free(folder)), notes, imports)


def _begin(config: AnyConfig, where: NewRun, out: str, notes: list[str], imports: tuple[Import, ...]) -> int:
    """Create a run and train it; under torchrun, a restarted worker resumes it."""
    device = local_device(pick_device(where.device))
    with process_group(device):
        if restarted() and RunFolder(out).config.exists():
            return resume_run(["--resume", out, *_flags(where, config)], imports)
        if is_main():
            RunFolder(out).check_free()
        splits = _load(config, where)
        dry_build(config, splits, device)
        notes = [*notes, data.empty_classes(splits, config.data.name), note_few_steps(config, splits)]
        with RunFolder.begin(out, config, imports) if is_main() else nullcontext(RunFolder(out)) as run:
            for note in filter(None, notes if is_main() else []):
                print_message(f"note: {note}")
            keep_identity(run, splits, config)
            return _train(config, run, splits, device, where, imports)


def _each_seed(config: AnyConfig, where: NewRun, base: Path, notes: list[str], imports: tuple[Import, ...]) -> int:
    """Train a run for each seed: finished ones are skipped, others resumed; all must have these settings."""
    if launched() > 1:
        raise UserError("--seeds trains one run after another: use --processes, or give torchrun one --seed at a time.")
    configs = {f"{where.out or base}-s{seed}": replace(config, seed=seed) for seed in where.seeds}
    existing = {out: RunFolder(out) for out in configs if RunFolder(out).config.exists()}
    for out, run in existing.items():
        if changed := config_differences(run.read_config(), configs[out], out, "this command"):
            raise UserError(f"{changed}: give the settings of that run to resume it, or another --out.")
    workers = ["--processes", str(where.processes), "--restarts", str(where.restarts)]
    for out, each in configs.items():
        if out in existing and existing[out].is_finished:
            print_result(f"{out} is finished")
            continue
        resumed = ["--resume", out, *_flags(where, each), *workers]
        code = resume_run(resumed, imports) if out in existing else _begin(each, where, out, notes, imports)
        if code:
            return code
    suggest("done; next:", "uiat", "evaluate", *configs, *_named(where, config))
    return 0


def check_processes(options: LaunchOptions, device: torch.device) -> None:
    """Raise a `UserError` for impossible numbers of processes or restarts, before a run folder is created."""
    check_counts(options, processes=1, restarts=0)
    most, kind = (torch.cuda.device_count(), "GPU(s)") if device.type == "cuda" else (cores(), "core(s)")
    if options.processes > most:
        raise UserError(f"--processes is {options.processes}, and there are {most} {kind} here: give at most {most}.")


def resume_run(args: list[str], imports: tuple[Import, ...] = ()) -> int:
    """Resume a run from its configuration; given imports replace those it was made with."""
    chosen = parse_resume(args)
    if chosen.out:
        raise UserError("--out cannot be given with --resume: the run stays in its own folder.")
    run = RunFolder.open(chosen.resume)
    if not imports:
        check_imports(run.path, run.read_imports())
    config = read_known(run)
    if isinstance(config.model, InMemory):
        raise UserError(f"{run.path} was trained by uiat.fit: call it again with the same arguments to resume the run.")
    check_model(config.model, chosen.model, run.path)
    check(config)
    if chosen.on_nonfinite is not None:
        config = replace(config, train=replace(config.train, on_nonfinite=chosen.on_nonfinite))
    if chosen.train.epochs is not None:
        config = extended(config, chosen.train.epochs, run.count_epochs() + 1, run.path)
    device = local_device(pick_device(chosen.device))
    check_processes(chosen, device)
    with process_group(device):
        find_network(run, config.model)
        images = replace(config.data, name=choose_data(config.data.name, chosen.data or None, run.path))
        splits = _load(replace(config, data=find_data(run, images)), chosen)
        check_network_size(run, config.model, splits.spec)
        check_same(run.path, run.read_data() or known_identity(run), identity(splits), images.name)
        keep_identity(run, splits, config, moved=chosen.data)
        changed = chosen.on_nonfinite is not None or chosen.train.epochs is not None
        if (changed or imports) and is_main():
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
    if where.processes > 1 and launched() == 1:
        flags = [*_flags(where, config), *import_words(imports)]
        code = launch(run.path, where.processes, where.restarts, flags)
        if code == 1 and not (run.has_trained() or RunFolder(run.helper).has_trained()):
            raise UserError("all workers exited before the first step; see their output above.")
        return code
    if is_main():
        print_result(f"run folder: {run.path}")
    callback = open_callback(where.log, run, config) if is_main() else None
    with StopSignal() as stop:
        finished = train(config, run, splits, device, callback, stop)
    if finished:
        suggest("done; next:", "uiat", "evaluate", run.path, *_named(where, config))
        return 0
    suggest("resume with:", "uiat", "train", "--resume", run.path, *_named(where, config), *import_words(imports))
    return stopped(stop)
