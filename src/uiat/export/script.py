"""Python files of an export: `model.py`, which loads the network, `network.py`, a copy of a custom network, and
`example.py`, which classifies pictures."""

import ast
import inspect
import json
import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from uiat import __version__
from uiat.data import pixels
from uiat.errors import UserError
from uiat.models import Imported, ModelConfig, NetworkOptions, networks
from uiat.models.libraries import library_of
from uiat.runs.weights import EXPORTED
from uiat.types import DataSpec

SCRIPT, NETWORK, EXAMPLE = "model.py", "network.py", "example.py"

HEADER = """\
# A classifier of inputs (N, {shape}) in [0, 1] into {classes} classes; it returns logits.
#
#     from model import load
#     model = load()
#
# Written by `uiat export` (uiat {version}, MIT licence); card.json says how it was trained and measured.
"""
CUSTOM = """\
# The network is {name!r} of network.py beside this file, a copy of the file that defined it in training.
from network import {name}
"""
NORMALIZED = '''
from collections.abc import Sequence

import torch
from torch import Tensor, nn


{layer}

class NormalizedNetwork(nn.Module):
    """A network that normalises images in [0, 1]; mean and std are loaded with the weights."""

    def __init__(self, model: nn.Module, channels: int) -> None:
        super().__init__()
        self.model = model
        self.normalize = Normalize([0.0] * channels, [1.0] * channels, persistent=True)

    def forward(self, x):
        return self.model(self.normalize(x))
'''
LOAD = '''

# Written by `uiat export`: the data that the network was trained for, and a function that loads it.
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402

import torch  # noqa: E402, F811
from safetensors.torch import load_file  # noqa: E402
from torch import nn  # noqa: E402

DATA = SimpleNamespace({data})


def load(path: str | Path | None = None, device: str | torch.device = "cpu") -> nn.Module:
    """Return the trained network in eval mode; the weights are at `path`, or in {weights} beside this file."""
    network: nn.Module = {build}
    network.load_state_dict(load_file(path or Path(__file__).with_name("{weights}")))
    return network.to(device).eval()
'''
EXAMPLE_HEADER = """\
# Classify pictures: python example.py photo.jpg …
#
# Needs torch, safetensors and pillow, and the other files of this folder; card.json has the names of the classes, and
# the size that pictures are resized to. Written by `uiat export` (uiat {version}, MIT licence).
"""
CLASSIFY = '''

# Written by `uiat export`: classification of a picture, and the command line.
import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from model import load  # noqa: E402

CARD = json.loads(Path(__file__).with_name("card.json").read_text(encoding="utf-8"))


def classify(model: torch.nn.Module, path: str | Path) -> list[tuple[str, float]]:
    """Return the name and the probability of each class for a picture file, the most probable class first."""
    height, width = CARD["preprocessing"]["size"]
    with Path(path).open("rb") as file, opened(file) as image:
        pixels = to_pixels(image, (height, width), CARD["preprocessing"]["colour"] == "grey")
    with torch.no_grad():
        probabilities = model(pixels[None].float() / 255)[0].softmax(dim=0)
    return sorted(zip(CARD["data"]["classes"], probabilities.tolist()), key=lambda pair: -pair[1])


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("usage: python example.py photo.jpg …")
    network, code = load(), 0
    for name in sys.argv[1:]:
        try:
            best = classify(network, name)[:3]
        except Exception as error:  # decoders raise nearly anything on damaged bytes
            print(f"{name}: no prediction ({error})", file=sys.stderr)
            code = 1
        else:
            print(f"{name}:", ", ".join(f"{label} {100 * share:.2f}%" for label, share in best))
    sys.exit(code)
'''


def write_example() -> str:
    """Return the text of `example.py`, which prepares pictures as `uiat.data` does."""
    source = Path(pixels.__file__).read_text(encoding="utf-8")
    return EXAMPLE_HEADER.format(version=__version__) + source + CLASSIFY


def write_scripts(config: ModelConfig, data: DataSpec) -> dict[str, str]:
    """Return the text of `model.py` and, for a network given as `module:callable`, of `network.py`."""
    copies: dict[str, str] = {}
    if isinstance(config, Imported) and library_of(config.target) is not None:
        raise UserError(
            f"{config.target} needs its library and cannot be exported: load the run with uiat.load, or give "
            "its weights file to that library."
        )
    if isinstance(config, Imported):
        module, _, name = config.target.partition(":")
        build = show_call(name, config.arguments(config.find(), data))
        source = CUSTOM.format(name=name)
        if config.mean:
            source += NORMALIZED.format(layer=inspect.getsource(networks.Normalize))
            build = f"NormalizedNetwork({build}, {len(config.mean)})"
        copies[NETWORK] = read_module(module, config.target)
    elif isinstance(config, NetworkOptions):
        build = show_call(config.module.__name__, options(config), "DATA.num_classes", "DATA.shape[0]")
        source = Path(networks.__file__).read_text(encoding="utf-8")
    else:
        module, name = type(config).__module__, type(config).__name__
        build = f"{show_call(name, options(config))}.build(DATA)"
        source = without_uiat(read_module(module, f"{module}.{name}"))
    header = HEADER.format(shape=", ".join(map(str, data.shape)), classes=data.num_classes, version=__version__)
    facts = ", ".join(f"{name}={value}" for name, value in {**options(data), "numel": data.numel}.items())
    return {SCRIPT: header + source + LOAD.format(data=facts, build=build, weights=EXPORTED), **copies}


def options(config: Any) -> dict[str, Any]:
    """Return all fields of a dataclass, also those with default values, since defaults may change later."""
    return {field.name: getattr(config, field.name) for field in fields(config)}


def show_call(name: str, arguments: dict[str, Any], *first: str) -> str:
    """Return the source of a call in `load`, one argument per line; `first` are positional arguments, as source."""
    shown = [*first, *(f"{key}={to_source(value)}" for key, value in arguments.items())]
    lines = "".join(f"        {argument},\n" for argument in shown)
    return f"{name}(\n{lines}    )" if shown else f"{name}()"


def to_source(value: Any) -> str:
    """Return a value as source: a string in double quotes, a `DataSpec` as `DATA`, which the file defines."""
    if isinstance(value, DataSpec):
        return "DATA"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def read_module(name: str, network: str) -> str:
    """Return the source of the module that defines a custom network, which must not need other files beside it."""
    module = sys.modules[name]
    path = Path(getattr(module, "__file__", None) or "")
    if hasattr(module, "__path__") or path.suffix != ".py" or not path.is_file():
        raise UserError(f"{name!r} is not a single file, so {network} cannot be exported: define it in one file.")
    text = path.read_text(encoding="utf-8")
    for package in packages(ast.walk(ast.parse(text))):
        beside = package != name and (path.with_name(f"{package}.py").is_file() or (path.parent / package).is_dir())
        if not package or beside or name.startswith(f"{package}."):
            other = f"{package} beside it" if package else "relatively"
            raise UserError(f"{path} imports {other}, so {network} cannot be exported: define it in one file.")
    return text


def packages(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the top-level packages that syntax nodes import; an empty name for a relative import."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("" if node.level else (node.module or "").split(".")[0])
    return sorted(names)


def requirements(texts: Iterable[str]) -> list[str]:
    """Return the packages that the sources of an export need."""
    needed = {package for text in texts for package in packages(ast.walk(ast.parse(text)))}
    return sorted(needed - {"network"} - set(sys.stdlib_module_names))


def without_uiat(text: str) -> str:
    """Return the source of a module that registers a network, rewritten so that it can be imported without uiat.

    Names from uiat become placeholders, which suffice for annotations; other top-level statements that use them, such
    as `MODELS["mine"] = Mine()`, are removed.
    """
    lines, names = text.splitlines(), set[str]()
    for node in ast.parse(text).body:
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        if isinstance(node, ast.Import | ast.ImportFrom) and "uiat" in packages([node]):
            bound = [alias.asname or alias.name.split(".")[0] for alias in node.names]
            names.update(bound)
            replacement = f"{' = '.join(bound)} = object"
        elif used & names and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            replacement = ""
        else:
            continue
        last = node.end_lineno or node.lineno
        lines[node.lineno - 1 : last] = [replacement, *[""] * (last - node.lineno)]
    return "\n".join(lines).rstrip() + "\n"
