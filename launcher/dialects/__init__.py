"""How frameworks spell knobs: one table of spellings each, one row here. Not: any decision."""

from __future__ import annotations

from autoconf_launch.core import ConfigError

from .base import Dialect, Rendered, ScriptSource, SpaceFile, UserSettings
from .native import NativeDialect

DIALECTS: tuple[Dialect, ...] = (NativeDialect(),)


def find_dialect(source: ScriptSource) -> Dialect:
    """The first dialect that knows the script.

    Raises:
        ConfigError: none does.
    """
    for dialect in DIALECTS:
        if dialect.detects(source):
            return dialect
    raise ConfigError(
        "The script names no configuration file with keys that can be tuned; give one with "
        "--config FILE (JSON, hjson or YAML) among the script's arguments. If the script hands "
        'its file to initialize, add "autotuning": {} to it.'
    )


__all__ = [
    "DIALECTS",
    "Dialect",
    "Rendered",
    "ScriptSource",
    "SpaceFile",
    "UserSettings",
    "find_dialect",
]
