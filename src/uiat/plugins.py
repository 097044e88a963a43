"""Plug-ins: custom modules that register methods, models, data sets or recipes, imported by name or installed."""

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from uiat.errors import UserError, quoted

FLAG = "--import"
GROUP = "uiat.plugins"
"""The entry point group of installed plug-ins."""


@dataclass(frozen=True)
class Import:
    """A module that registers custom parts."""

    name: str
    """A module's name, or the path of a .py file, as given."""
    folder: str
    """The absolute folder in which the command was run; modules and relative paths are resolved there."""

    @property
    def place(self) -> Path:
        """The path that is tried first: the file, or the path of a module of that name in the folder."""
        path = self.name if self.name.endswith(".py") else self.name.replace(".", "/")
        return (Path(self.folder) / path).resolve()

    def load(self) -> None:
        """Import the module, unless it is already loaded."""
        wanted_by = f"{FLAG} {self.name}"
        if not self.name.endswith(".py"):
            import_from(Path(self.folder), self.name, wanted_by)
            return
        file = self.place
        if not file.is_file():
            raise UserError(
                f"there is no file {file} for {wanted_by}: give the path of a .py file, or a module's name."
            )
        if _file_of(sys.modules.get("__main__")) != file:  # else it is the script that runs the command
            module = sys.modules.get(file.stem) or import_from(file.parent, file.stem, wanted_by)
            if _file_of(module) != file:
                raise UserError(f"{file} for {wanted_by} has the name of another module: rename the file.")


def unnamed(what: str, flags: Iterable[str], argument: str = "") -> UserError:
    """Return the error for code that only a run or an export names; the flags, or the argument, allow it."""
    python = f" ({argument} in Python)" if argument else ""
    return UserError(
        f"{what}, code that is not part of uiat and is imported only where you name it: inspect it, then add "
        f"{' '.join(map(quoted, flags))}{python}."
    )


def take_imports(args: list[str]) -> tuple[tuple[Import, ...], list[str]]:
    """Split the arguments into every `--import MODULE` (or `--import=MODULE`) and the rest."""
    imports, rest = [], []
    remaining = iter(args)
    for argument in remaining:
        flag, equals, value = argument.partition("=")
        if flag != FLAG:
            rest.append(argument)
            continue
        name = value if equals else next(remaining, "")
        if not name or name.startswith("-"):
            raise UserError(f"{FLAG} names nothing: give a module's name, or the path of a .py file.")
        imports.append(Import(name, str(Path.cwd())))
    return tuple(imports), rest


def import_words(imports: Iterable[Import]) -> list[str]:
    """Return the command-line arguments for the same imports."""
    return [argument for plugin in imports for argument in (FLAG, plugin.name)]


def import_from(folder: Path, module: str, wanted_by: str) -> ModuleType:
    """Import a module, also from a folder; every failure is a `UserError`."""
    if (here := str(folder)) not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"cannot import {module!r} for {wanted_by} ({error}): run from its folder.") from None
    except SystemExit:
        raise UserError(
            f"{module!r} exits the program when it is imported for {wanted_by}: "
            'let it call `main` only under `if __name__ == "__main__":`.'
        ) from None
    except Exception as error:  # a syntax error, a malformed name, or an exception of the module
        raise UserError(f"cannot import {module!r} for {wanted_by} ({type(error).__name__}: {error}).") from error


def import_callable(target: str, flag: str) -> Any:
    """Return the callable that a flag names as `module:callable`, imported from the current folder."""
    module, _, name = target.partition(":")
    found = getattr(import_from(Path.cwd(), module, f"{flag} {target}"), name, None)
    if not callable(found):
        raise UserError(f"{module!r} has no callable {name!r} for {flag} {target}.")
    return found


def load_installed() -> list[str]:
    """Import the plug-ins of installed packages; return an error message for each that fails."""
    failed = []
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except (Exception, SystemExit) as error:  # a broken plug-in must not stop commands that do not need it
            package = entry.dist.name if entry.dist is not None else "a package"
            reason = f"{type(error).__name__}: {error}"
            failed.append(f"the plug-in {entry.name!r} of {package} is skipped, it cannot be imported ({reason}).")
    return failed


def _file_of(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file else None
