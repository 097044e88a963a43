"""`uiat data info|pack|fetch`: inspection of data, packing of image folders, downloads of known data sets."""

import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.table import Table

from uiat import data
from uiat.cli.flags import MAX_WIDTH, positionals
from uiat.cli.options import parse_options, suggest
from uiat.cli.output_paths import check_file
from uiat.data import DataConfig, custom, packed
from uiat.data.packing import PackOptions, pack_images
from uiat.errors import UserError, quoted, unknown
from uiat.fields import check_numbers, unchecked
from uiat.io import json_text, write_output
from uiat.paths import suggest_path, user_path
from uiat.progress import PipeSafeConsole, print_result
from uiat.recipes import RECIPES
from uiat.report.data_files import describe_data, write_npz

_MOST_CLASSES = 20
"""Maximum number of classes in the printed table; the JSON has all."""

Size = Annotated[int | tuple[int, int] | None, tyro.conf.arg(aliases=["--data.size"])]
TestFraction = Annotated[float, tyro.conf.arg(aliases=["--data.test-fraction"])]
"""Flags that are also accepted by their names in `uiat train`, which error messages use."""

EXAMPLES = {
    "info": ("uiat data info cifar10", "uiat data info photos --size 32 --json photos.json"),
    "pack": ("uiat data pack photos --size 32", "uiat data pack my_data:load --out photos.npz"),
    "fetch": ("uiat data fetch cifar10", "uiat data fetch svhn --data-dir data"),
}


@dataclass(frozen=True)
class Info:
    """Show the number of images in each split and class of a data set, their shape, and their location."""

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """A known data set, a path (a folder of images, a packed folder, an .npz file), or `module:callable`."""
    size: Size = None
    """HEIGHT WIDTH of a folder's images, or one number for a square; else the most frequent size."""
    test: Annotated[str, tyro.conf.arg(aliases=["--data.test"])] = ""
    """Test file that belongs to an .npz file."""
    test_fraction: TestFraction = 0.2
    """Fraction of the images held out as the test split, where there is none."""
    json: str | None = None
    """Also write everything to this file, as JSON."""
    data_dir: str | None = None
    """Folder of data sets and packed images; else $UIAT_DATA, else a cache folder."""


@dataclass(frozen=True)
class Pack:
    """Decode a folder of images (or the data of `module:callable`) once, into files that `--data` accepts."""

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """A folder with a sub-folder for each class, or with folders train, validation and test of such sub-folders; or
    `module:callable`."""
    out: str = ""
    """Folder to write, whose images are memory-mapped, or an .npz file; empty: FOLDER-packed."""
    size: Size = None
    """HEIGHT WIDTH of the packed images, or one number for a square; else the most frequent size."""
    test_fraction: TestFraction = 0.2
    """Fraction of the images held out as the test split, where there is none."""


@dataclass(frozen=True)
class Fetch:
    """Download a known data set, unless it is there already."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Name of the data set (see `uiat list data`)."""
    data_dir: str | None = None
    """Folder to download to; else $UIAT_DATA, else a cache folder."""


def main(args: list[str]) -> int:
    """Run one of the sub-commands."""
    if not args or args[0] in ("-h", "--help"):
        lines = [f"  {name:<6} {kind.__doc__}" for name, (kind, _) in DATA_COMMANDS.items()]
        texts = [textwrap.fill(line, MAX_WIDTH, subsequent_indent=" " * 9) for line in lines]
        print("usage: uiat data COMMAND [--help]\n\n" + "\n".join(texts))
        return 0
    if args[0] not in DATA_COMMANDS:
        raise unknown("data command", args[0], DATA_COMMANDS)
    kind, run = DATA_COMMANDS[args[0]]
    place, *_ = (name for name, _ in positionals(kind))
    run(parse_options(kind, args[1:], f"uiat data {args[0]} {place}", EXAMPLES[args[0]]))
    return 0


def _info(options: Info) -> None:
    if not options.source:
        raise UserError(f"no data is named: give {custom.FORMS}.")
    with unchecked():
        config = DataConfig(
            name=options.source,
            test=options.test,
            test_fraction=options.test_fraction,
            size=options.size,
            download=False,
        )
    check_numbers(config, "--data.")
    check_file(options.json, text=True)
    parts = data.read_source(config, options.data_dir, quiet=True)  # the table shows its notes
    splits = data.make_splits(parts, config)
    facts = describe_data(options.source, parts, splits)
    facts["notes"] = [*facts["notes"], *filter(None, [data.empty_classes(splits, options.source)])]
    if options.json:
        write_output(options.json, json_text(facts))
    _print_facts(facts)


def _pack(options: Pack) -> None:
    folder, name = user_path(options.folder), options.folder
    is_callable = custom.is_callable(name)
    if not (folder.is_dir() or is_callable):
        advice = "" if folder.exists() else suggest_path(folder)
        advice = advice or "give a folder with a sub-folder of images for each class."
        raise UserError(f"there is no folder {folder}: {advice}")
    if packed.is_packed(folder):
        raise UserError(f"{folder} is packed already: use it with --data {quoted(folder)}.")
    out = user_path(options.out or f"{name.replace(':', '-') if is_callable else folder}-packed")
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out} exists already: choose another --out, or remove it.")
    size = (options.size, options.size) if isinstance(options.size, int) else options.size
    listing, choice = custom.listing(name), PackOptions(size, options.test_fraction)
    if out.suffix.lower() == ".npz":
        files = write_npz(listing, choice, out)
    else:
        pack_images(listing, choice, out)
        files = [out]
    test = ["--data.test", files[1]] if len(files) > 1 else []
    suggest("packed; next:", "uiat", "train", "--data", files[0], *test)


def _fetch(options: Fetch) -> None:
    if options.name not in data.SOURCES:
        raise unknown("data set", options.name, data.SOURCES)
    parts = data.read_source(DataConfig(name=options.name), options.data_dir)
    splits = data.make_splits(parts, DataConfig(name=options.name))
    _print_facts(describe_data(options.name, parts, splits))
    matching = [name for name in RECIPES if name.startswith(f"{options.name}-") and name.endswith("-uiat")]
    data_dir = ["--data-dir", options.data_dir] if options.data_dir else []
    suggest("done; next:", "uiat", "train", *(matching[:1] or ["--data", options.name]), *data_dir)


def _print_facts(facts: dict[str, Any]) -> None:
    """Print a table of counts with a row for each class, and further facts."""
    counts: dict[str, dict[str, int]] = facts["counts"]
    classes: list[str] = facts["classes"]
    table = Table(title=str(facts["name"]))
    table.add_column("class")
    for part in counts:
        table.add_column(part, justify="right")
    for name in classes[:_MOST_CLASSES]:
        table.add_row(name, *(str(row[name]) for row in counts.values()))
    if len(classes) > _MOST_CLASSES:
        table.add_row(f"… and {len(classes) - _MOST_CLASSES} more", *("" for _ in counts))
    table.add_section()
    table.add_row("all", *(str(sum(row.values())) for row in counts.values()))
    PipeSafeConsole().print(table)
    channels, height, width = facts["shape"]
    print_result(f"{len(classes)} classes, {channels} × {height} × {width} (channels × height × width), uint8")
    print_result(f"pixels: {facts['megabytes']} MB, {facts['memory']}\nwhere: {facts['where']}")
    for note in facts["notes"]:
        print_result(f"note: {note}")


DATA_COMMANDS: dict[str, tuple[type, Callable[..., None]]] = {
    "info": (Info, _info),
    "pack": (Pack, _pack),
    "fetch": (Fetch, _fetch),
}
