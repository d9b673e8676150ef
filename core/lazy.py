"""The face of a room: names that are imported when they are first used.

A room's ``__init__`` lists them once, where type checkers read them::

    if TYPE_CHECKING:
        from .noise import Noise
    else:
        __getattr__ = lazy_names(__name__, __file__)

So ``from room import Noise`` loads ``room.noise`` and nothing else: a verb starts without the
libraries of the others, and a rank without those of the launcher.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path


def lazy_names(package: str, file: str) -> Callable[[str], object]:
    """A module's ``__getattr__`` for the names that ``file`` imports for type checkers alone."""

    def attribute(name: str) -> object:
        source = _sources(file).get(name)
        if source is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, defined_as = source
        value = getattr(importlib.import_module(module, package), defined_as)
        setattr(sys.modules[package], name, value)
        return value

    return attribute


@cache
def _sources(file: str) -> dict[str, tuple[str, str]]:
    """Each name's module as it is written there, and the name that it has in it."""
    found: dict[str, tuple[str, str]] = {}
    for block in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        if not (isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"):
            continue
        for line in block.body:
            if isinstance(line, ast.ImportFrom):
                module = "." * line.level + (line.module or "")
                found |= {a.asname or a.name: (module, a.name) for a in line.names}
    return found
