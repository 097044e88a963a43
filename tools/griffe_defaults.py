"""Defaults of fields in the API reference, as a reader of it knows them."""

from typing import Any

import griffe


class Defaults(griffe.Extension):
    """Show the default of a field that was added later, `added(0.0)`, as 0.0."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Replace the call by its argument."""
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) == "added":
            attr.value = attr.value.arguments[0]
