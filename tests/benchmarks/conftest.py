"""Loads a benchmark's module from its folder, which is not a package."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def import_benchmark(name: str, *below: str) -> ModuleType:
    """The module, which may import its neighbours in these folders below ours."""
    folders = [str(BENCHMARKS), *(str(BENCHMARKS / folder) for folder in below)]
    sys.path[:0] = folders
    try:
        return import_module(name)
    finally:
        del sys.path[: len(folders)]
