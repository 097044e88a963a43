"""The version of the numbers: part of the key of every run and measurement, so that old ones can be left behind."""

from typing import Any

RESULTS_VERSION = 2
"""Raise it with any change after which the same configuration gives other numbers beyond the order of floats: to a
method, an attack, a network, the data, the loop, or a measurement. Finished runs and measurements of before are then
made anew beside the old ones."""


def stamped(facts: Any) -> Any:
    """Return what a key is made of, with the version. The first adds nothing: runs without a version are of it."""
    return facts if RESULTS_VERSION == 1 else {"results": RESULTS_VERSION, "of": facts}
