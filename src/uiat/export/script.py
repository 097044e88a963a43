"""`model.py`: the network's source and a `load`, in one file that needs torch and safetensors alone."""

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from uiat import __version__
from uiat.export.rewrite import constant
from uiat.export.source import Definition, Import, bundle
from uiat.models import ModelConfig
from uiat.runs.weights import EXPORTED
from uiat.types import DataSpec

ALWAYS: set[Import] = {("pathlib", "Path"), ("torch", ""), ("safetensors.torch", "load_file"), ("torch", "nn")}
"""What `load` imports."""

LOAD = '''\
def load(path: str | Path | None = None, device: str | torch.device = "cpu") -> nn.Module:
    """Return the trained network in eval mode; the weights are at `path`, or in {weights} beside this."""
    network: nn.Module = {build}
    network.load_state_dict(load_file(path or Path(__file__).with_name("{weights}")))
    return network.to(device).eval()
'''


def write_script(config: ModelConfig, data: DataSpec) -> str:
    """Return the text of `model.py` for a network whose source can be taken along."""
    found = bundle(type(config))
    names = {constant(attribute): attribute for attribute in ("num_classes", "num_samples", "shape", "numel")}
    constants = [f"{name} = {getattr(data, names[name])!r}" for name in names if name in found.reads]
    parts = [Definition(text, frozenset(), compact=True) for text in constants] + found.definitions
    # Every option is spelled out: a later change of a default must not change what was trained.
    options = {f.name: show(getattr(config, f.name)) for f in fields(config)}  # type: ignore[arg-type]
    build = f"{show_call(type(config).__name__, options)}.build()"
    return assemble(header(data, found.summary), found.imports, parts, build)


def header(data: DataSpec, summary: str) -> str:
    """Return the docstring of `model.py`."""
    shape = ", ".join(map(str, data.shape))
    lines = [
        f"A classifier of inputs (N, {shape}) in [0, 1] into {data.num_classes} classes; it returns logits.",
        "",
        "    from model import load",
        "    model = load()",
        "",
        f"Written by `uiat export` (uiat {__version__}, MIT licence); card.json says how it was trained and measured.",
    ]
    return "\n".join([*lines, "", *summary.splitlines()] if summary else lines)


def assemble(docstring: str, imports: Iterable[Import], parts: Iterable[Definition], build: str) -> str:
    """Put docstring, imports, definitions and `load` together."""
    plain = docstring.replace("\\", r"\\").replace('"""', r"\"\"\"")
    text = f'"""{plain}\n"""\n\n' + show_imports({*imports, *ALWAYS})
    before = True
    for part in parts:
        text += ("\n" if before and part.compact else "\n\n") + part.text + "\n"
        before = part.compact
    return text + "\n\n" + LOAD.format(build=build, weights=EXPORTED)


def show_imports(imports: set[Import]) -> str:
    """Write imports the way formatters do: the standard library, then the rest; `import` before `from`."""
    groups: list[str] = []
    for standard in (True, False):
        chosen = [i for i in imports if (re.split("[. ]", i[0])[0] in sys.stdlib_module_names) == standard]
        lines = [f"import {module}" for module, name in sorted(chosen) if not name]
        for origin in sorted({module for module, name in chosen if name}):
            names = sorted((name for module, name in chosen if name and module == origin), key=_isort)
            lines.append(f"from {origin} import {', '.join(names)}")
        if lines:
            groups.append("\n".join(lines))
    return "\n\n".join(groups) + "\n"


def show_call(name: str, arguments: dict[str, str]) -> str:
    """Write a call within `load`, one argument a line."""
    lines = "".join(f"        {key}={value},\n" for key, value in arguments.items())
    return f"{name}(\n{lines}    )" if arguments else f"{name}()"


def _isort(name: str) -> tuple[int, str]:
    """Order constants before classes before functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


def show(value: Any) -> str:
    """Write a value as source; a string in the quotes that the rest of the file has."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
