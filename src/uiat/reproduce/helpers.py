"""HAT's helpers as cells: equal ones are one run, made once, and every HAT run links to it."""

from collections.abc import Iterable
from pathlib import Path

from uiat.engine.setup import helper_config
from uiat.errors import UserError
from uiat.io import reason
from uiat.reproduce.cell import Cell, Store, merge
from uiat.runs.folder import RunFolder


def helper_cell(cell: Cell) -> Cell | None:
    """Return the run that trains a cell's helper; `None` where it needs none, or one that nobody can share."""
    method = cell.config.method
    if not method.needs_helper or method.helper or cell.config.init:
        return None
    return Cell(helper_config(cell.config, method, RunFolder(".")), labels=("HAT's helper",))


def helper_store(store: Store) -> Store | None:
    """Return where a cell's helper is, or will be; `None` where it needs none, or has one in its own folder."""
    helper, own = helper_cell(store.cell), store.run.helper
    if helper is None or (own.is_dir() and not own.is_symlink()):
        return None
    return Store(helper, store.out)


def with_helpers(cells: Iterable[Cell], out: Path) -> list[Cell]:
    """Return cells with the helpers they need, each once and before those who need it."""
    found = []
    for cell in cells:
        helper = helper_store(Store(cell, out))
        found += [cell] if helper is None else [helper.cell, cell]
    return merge(found)


def link_helper(store: Store) -> None:
    """Give a run its finished helper, as the folder `helper` in which it looks for one."""
    helper, link = helper_store(store), store.run.helper
    if helper is None or link.is_symlink():
        return
    if not helper.trained:
        raise UserError(f"its helper {helper.path.name} is not finished.")
    try:
        link.symlink_to(Path("..") / helper.path.name, target_is_directory=True)
    except OSError as error:
        raise UserError(f"cannot make the link {link}: {reason(error)}; choose another --out.") from None
