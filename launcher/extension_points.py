"""Extension points: a table of our own implementations, and entry points of other packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from importlib import import_module
from typing import Any

from autoconf_launch.core import (
    AutoconfError,
    ConfigError,
    installed_extensions,
    nearest_known,
    unusable_extension,
)


def references(point: str, table: Mapping[str, str]) -> dict[str, str]:
    """``name -> "module:attribute"`` of other packages and of the table, which wins."""
    installed = {name: entry.value for name, entry in installed_extensions(point).items()}
    return {**installed, **table}


def find_reference(
    point: str, table: Mapping[str, str], name: str, *, where: str, further: Iterable[str] = ()
) -> str:
    """``module:attribute`` of an implementation; nothing of it is imported.

    Args:
        point: the extension point, such as ``backend``.
        table: our own implementations of it.
        name: of the requested implementation.
        where: the flag or key that named it, for the error.
        further: more known names, for the error.

    Raises:
        ConfigError: nothing has this name.
    """
    if name in table:
        return table[name]
    known = references(point, table)
    if name not in known:
        raise ConfigError(
            f"{where} {name!r} is unknown; {nearest_known(name, {*known, *further})}"
        )
    return known[name]


def load_extension(
    point: str, reference: str, make: Callable[[Any], Any] = lambda loaded: loaded, call: str = ""
) -> Any:
    """An implementation as ``make`` makes it of the object at its reference.

    Args:
        point: the extension point.
        reference: ``module:attribute`` of ours, or of another package.
        make: its first call.
        call: what ``make`` calls it with, for the error.

    Raises:
        ConfigError: another package's implementation cannot be loaded or made.
    """
    try:
        return make(load_reference(reference))
    except AutoconfError:
        raise
    except Exception as error:  # foreign code raises its own kinds of errors
        if reference.startswith("autoconf_launch."):
            raise
        raise unusable_extension(point, reference, error, call) from error


def load_reference(reference: str) -> Any:
    """The object at ``module:attribute``; only its own module is imported."""
    module, _, attributes = reference.partition(":")
    return reduce(getattr, attributes.split("."), import_module(module))
