"""Find the configuration that a script's own arguments name. Not: its meaning (dialects)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.core import config_keys as keys

from ..config_file import read_config, read_document
from ..dialects import ScriptSource, SpaceFile

FLAGS = ("--config", "--deepspeed", "--deepspeed_config")
_ALWAYS_OURS = FLAGS[1:]
"""Flags that name a DeepSpeed configuration, whatever stands in it."""
_SUFFIXES = (".json", ".hjson", ".yaml", ".yml")


def find_source(script_args: tuple[str, ...], tuning_space: str | None = None) -> ScriptSource:
    """The last document with our keys that one of ``FLAGS`` names.

    Where there is none: the last one that waits for them, an empty one or a DeepSpeed
    configuration. A script's own file is left alone.

    Raises:
        ConfigError: a file that is named cannot be read.
    """
    space = None
    if tuning_space is not None:
        space = SpaceFile(name=tuning_space, document=read_config(Path(tuning_space)))
    nothing = ScriptSource(
        script_args=script_args, config=RawConfig({}), config_argument=None, space=space
    )
    ours = waiting = None
    for flag, position, path in _named(script_args):
        if path.suffix.lower() not in _SUFFIXES:
            continue
        if not _exists(path):
            raise ConfigError(f"{path}, named by the script's arguments, does not exist.")
        read = read_document(path)
        found = replace(
            nothing, config=read.config, config_argument=position, warnings=read.warnings
        )
        if keys.is_ours(read.config):
            ours = found
        elif flag in _ALWAYS_OURS or read.config == RawConfig({}):
            waiting = found
    return ours or waiting or nothing


def _named(arguments: tuple[str, ...]) -> Iterator[tuple[str, int, Path]]:
    """Flag, index of the argument with the path, and path."""
    for index, argument in enumerate(arguments):
        written, equals, value = argument.partition("=")
        flag = f"--{written.lstrip('-').replace('-', '_')}"
        if flag not in FLAGS or not written.startswith("-"):
            continue
        if equals:
            yield flag, index, Path(value)
        elif index + 1 < len(arguments) and not arguments[index + 1].startswith("-"):
            yield flag, index + 1, Path(arguments[index + 1])


def _exists(path: Path) -> bool:
    """Also of words that are too long to be a name."""
    try:
        return path.exists()
    except OSError:
        return False
