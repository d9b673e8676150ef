"""Which Python a word of a command line means, and which word means ours. Not: what it runs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from autoconf_launch.core import ConfigError


def other_python(word: str) -> str | None:
    """Path of the Python that a shell would run; None where that is ours, or it finds none.

    Raises:
        ConfigError: a path is given, and nothing there can be run.
    """
    found = shutil.which(word)
    if found is None and os.sep in word:
        raise ConfigError(
            f"{word} is no Python that can be run; give the path of one, or the script itself."
        )
    return None if found is None or _is_ours(Path(found)) else str(Path(found).absolute())


def python_beside(launcher: str) -> str | None:
    """Another Python than ours in whose environment a launcher stands, as torchrun does."""
    found = shutil.which(launcher)
    beside = Path(found).with_name("python") if found else None
    return other_python(str(beside)) if beside and os.access(beside, os.X_OK) else None


def our_python() -> str:
    """``python`` where a shell would run ours, else its path."""
    found = shutil.which("python")
    return "python" if found and _is_ours(Path(found)) else sys.executable


def _is_ours(python: Path) -> bool:
    """The same file in the same folder: environments are folders of links to one file."""
    ours = Path(sys.executable)
    return python.samefile(ours) and python.parent.samefile(ours.parent)
