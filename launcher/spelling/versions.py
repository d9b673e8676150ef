"""Installed versions against those that a table knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from autoconf_launch.core import ConfigError

from ..script import ScriptSource
from .launch_inputs import find_argument

Version: TypeAlias = tuple[int, int]
NEWEST: Version = (9999, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The versions of a package whose names were checked, both inclusive."""

    package: str
    oldest: Version
    newest: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """An argument that a version took away; ``now`` is what does it since."""

    argument: str
    gone_in: Version
    now: str


def installed_version(source: ScriptSource, package: str) -> Version | None:
    """Major and minor version of a package; None where it is not known."""
    text = dict(source.versions).get(package)
    numbers = re.findall(r"\d+", text or "")[:2]
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 else None


def check_version(source: ScriptSource, known: Known) -> tuple[str, ...]:
    """A sentence where the installed version is newer than the table.

    Raises:
        ConfigError: it is older.
    """
    version = installed_version(source, known.package)
    if version is None:
        return ()
    given = dict(source.versions)[known.package]
    if version < known.oldest:
        raise ConfigError(
            f"{known.package} {given} is older than {_text(known.oldest)}, the first one whose "
            "arguments are known here; update it, or take --dialect arguments with --arg."
        )
    if version > known.newest:
        return (
            f"{known.package} {given} is newer than {_text(known.newest)}, the last one whose "
            "arguments were checked; assuming that they are the same.",
        )
    return ()


def refuse_renamed(source: ScriptSource, package: str, renamed: tuple[Renamed, ...]) -> None:
    """Raise ConfigError where an argument is given that the installed version lacks."""
    version = installed_version(source, package)
    for row in renamed:
        given = find_argument(source.script_args, (row.argument,)) is not None
        if version is not None and version >= row.gone_in and given:
            raise ConfigError(
                f"{row.argument} is not an argument of {package} {dict(source.versions)[package]} "
                f"(gone in {_text(row.gone_in)}); {row.now}."
            )


def _text(version: Version) -> str:
    return ".".join(map(str, version))
