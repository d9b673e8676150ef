"""Faces that wait: names of a room whose modules are imported when one is first used.

A face imports the public names of its room. A face that would load numpy, torch or all verbs
for a single light name has a table instead, besides the imports for type checkers.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def attach(package: str, table: Mapping[str, str]) -> Callable[[str], object]:
    """A package's ``__getattr__``; ``table``: names by the module that they are imported from."""
    homes = {name: module for module, names in table.items() for name in names.split()}

    def attribute(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name], package), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute
