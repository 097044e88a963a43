"""`uiat data info|pack|fetch`: look at data, pack a folder of images, download a known data set."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from uiat import data
from uiat.cli.options import REGISTRY, check_file, suggest
from uiat.data import DataConfig, custom, packed
from uiat.data.packing import PackOptions, pack_images
from uiat.errors import UserError, quoted, unknown
from uiat.fields import check_numbers, unchecked
from uiat.io import json_text, write_output
from uiat.paths import suggest_path, user_path
from uiat.progress import PipeSafeConsole
from uiat.recipes import RECIPES
from uiat.report.data_files import describe_data, write_npz

_MOST_CLASSES = 20
"""How many classes a table shows; the JSON has all."""

Size = Annotated[int | tuple[int, int] | None, tyro.conf.arg(aliases=["--data.size"])]
TestFraction = Annotated[float, tyro.conf.arg(aliases=["--data.test-fraction"])]
"""Flags by the names that they have in training, too: errors name those."""


@dataclass(frozen=True)
class Info:
    """Show how many images a data set has in each split and class, their shape, and where they lie."""

    source: tyro.conf.Positional[str]
    """A known data set, a path (a folder of images, a packed one, an .npz), or module:callable."""
    size: Size = None
    """HEIGHT WIDTH of a folder's images, as in training; else the size that most of them have."""
    test: Annotated[str, tyro.conf.arg(aliases=["--data.test"])] = ""
    """The test file of an .npz."""
    test_fraction: TestFraction = 0.2
    """How much is held out as test where there is no test split."""
    json: str | None = None
    """A file to write all of it to, as JSON."""
    data_dir: str | None = None
    """Where data sets and packed images are looked for; else $UIAT_DATA, else a cache folder."""


@dataclass(frozen=True)
class Pack:
    """Decode a folder of images (or what module:callable returns) once, into files that `--data` takes."""

    folder: tyro.conf.Positional[str]
    """A folder with a sub-folder for each class, or splits train, validation and test of such folders; or
    module:callable."""
    out: str = ""
    """What to write: a folder that is mapped into memory, or an .npz; empty: FOLDER-packed."""
    size: Size = None
    """HEIGHT WIDTH, or one number for a square; else the size that most images have."""
    test_fraction: TestFraction = 0.2
    """How much is held out as test where there is no test split."""


@dataclass(frozen=True)
class Fetch:
    """Download a known data set, unless that was done before."""

    name: tyro.conf.Positional[str]
    """Its name; `uiat list data` shows them."""
    data_dir: str | None = None
    """Where to put it; else $UIAT_DATA, else a cache folder."""


def main(args: list[str]) -> int:
    """Run one of the commands."""
    if not args or args[0] in ("-h", "--help"):
        lines = [f"  {name:<6} {kind.__doc__}" for name, (kind, _) in DATA_COMMANDS.items()]
        print("usage: uiat data COMMAND [--help]\n\n" + "\n".join(lines))
        return 0
    if args[0] not in DATA_COMMANDS:
        raise unknown("data command", args[0], DATA_COMMANDS)
    kind, run = DATA_COMMANDS[args[0]]
    with REGISTRY:
        options: Any = tyro.cli(kind, args=args[1:], prog=f"uiat data {args[0]}", description=kind.__doc__)
    run(options)
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
    parts = data.read_source(config, options.data_dir, quiet=True)  # the table has its notes
    splits = data.make_splits(parts, config)
    facts = describe_data(options.source, parts, splits)
    facts["notes"] = [*facts["notes"], *filter(None, [data.empty_classes(splits, options.source)])]
    if options.json:
        write_output(options.json, json_text(facts))
    _show(facts)


def _pack(options: Pack) -> None:
    folder, name = user_path(options.folder), options.folder
    is_callable = custom.is_callable(name)
    if not (folder.is_dir() or is_callable):
        advice = "" if folder.exists() else suggest_path(folder)
        advice = advice or "give one with a sub-folder of images for each class."
        raise UserError(f"there is no folder {folder}: {advice}")
    if packed.is_packed(folder):
        raise UserError(f"{folder} is packed already: use it with --data {quoted(folder)}.")
    out = user_path(options.out or f"{name.replace(':', '-') if is_callable else folder}-packed")
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out} is there already: choose another --out, or remove it.")
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
    _show(describe_data(options.name, parts, splits))
    mine = [name for name in RECIPES if name.startswith(f"{options.name}-") and name.endswith("-uiat")]
    place = ["--data-dir", options.data_dir] if options.data_dir else []
    suggest("done; next:", "uiat", "train", *(mine[:1] or ["--data", options.name]), *place)


def _show(facts: dict[str, Any]) -> None:
    """Print a table of counts, a row for each class."""
    counts: dict[str, dict[str, int]] = facts["counts"]
    classes: list[str] = facts["classes"]
    table = Table(title=escape(str(facts["name"])))
    table.add_column("class")
    for part in counts:
        table.add_column(part, justify="right")
    for name in classes[:_MOST_CLASSES]:
        table.add_row(escape(name), *(str(row[name]) for row in counts.values()))
    if len(classes) > _MOST_CLASSES:
        table.add_row(f"… and {len(classes) - _MOST_CLASSES} more", *("" for _ in counts))
    table.add_section()
    table.add_row("all", *(str(sum(row.values())) for row in counts.values()))
    console = PipeSafeConsole(highlight=False)
    console.print(table)
    channels, height, width = facts["shape"]
    console.print(f"{len(classes)} classes, {channels} × {height} × {width} (channels × height × width), uint8")
    for line in (f"pixels: {facts['megabytes']} MB, {facts['memory']}", f"where: {facts['where']}"):
        console.print(line, markup=False, soft_wrap=True)
    for note in facts["notes"]:
        console.print(f"note: {note}", markup=False, soft_wrap=True)


DATA_COMMANDS: dict[str, tuple[type, Callable[..., None]]] = {
    "info": (Info, _info),
    "pack": (Pack, _pack),
    "fetch": (Fetch, _fetch),
}
