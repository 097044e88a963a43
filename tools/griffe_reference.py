"""Readable defaults and examples in the API reference."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n.*\S.*)*", re.MULTILINE)
"""From the first prompt to the next empty line."""


class Reference(griffe.Extension):
    """Show the default of a field that was added later, `optional_in_key(0.0)`, as 0.0, and examples as code."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Replace the call by its argument."""
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) == "optional_in_key":
            attr.value = attr.value.arguments[0]

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put each example between fences."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(match: re.Match[str]) -> str:
    lines = [line.removeprefix(match["indent"]) for line in match[0].splitlines()]
    return "\n".join(["```pycon", *lines, "```"])
