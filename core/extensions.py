"""Extensions that installed packages bring as entry points of ``autoconf_launch.<point>``."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


def installed_extensions(point: str) -> dict[str, EntryPoint]:
    """Entry points of other packages, by name.

    Packages are read again only after a folder of the path has changed: a hundred of them take
    25 ms.
    """
    folders = tuple((folder, _changed_ns(folder)) for folder in sys.path)
    selected = _entry_points(f"autoconf_launch.{point}", folders)
    return {entry.name: entry for entry in selected}


def _changed_ns(folder: str) -> int | None:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return None


@lru_cache(maxsize=16)
def _entry_points(group: str, folders: tuple[tuple[str, int | None], ...]) -> EntryPoints:
    from importlib.metadata import entry_points  # --help does not wait for it

    return entry_points(group=group)


def unusable_extension(point: str, value: str, why: Exception, call: str = "") -> ConfigError:
    """The error for an entry point of another package that fails before it does anything.

    Args:
        point: the extension point, such as ``strategy``.
        value: ``module:attribute``.
        why: error of its module or its first call.
        call: what it is called with; empty if nothing is called.
    """
    group = f"autoconf_launch.{point}"
    installed = installed_extensions(point).values()
    name = next((f"{entry.name} = " for entry in installed if entry.value == value), "")
    called = f"it is called with {call}; " if call else ""
    return ConfigError(
        f"The entry point {name}{value} of {group} cannot be used ({type(why).__name__}: "
        f"{str(why).rstrip('.')}); {called}correct it, or uninstall its package."
    )
