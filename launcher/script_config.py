"""Find the configuration that a script's own arguments name. Not: its meaning (dialects)."""

from __future__ import annotations

from pathlib import Path

from autoconf_launch.core import ConfigError, RawConfig
from autoconf_launch.core import config_keys as keys

from .config_file import read_config
from .dialects import ScriptSource

FLAGS = ("--config", "--deepspeed", "--deepspeed_config")
_SUFFIXES = (".json", ".hjson", ".yaml", ".yml")


def find_source(script_args: tuple[str, ...]) -> ScriptSource:
    """The last document named by one of ``FLAGS``; one without our keys is left alone.

    Raises:
        ConfigError: the file that is named cannot be read.
    """
    chosen = ScriptSource(script_args=script_args, config=RawConfig({}), config_argument=None)
    for position, path in _named(script_args):
        if path.suffix.lower() not in _SUFFIXES:
            continue
        if not path.exists():
            raise ConfigError(f"{path}, named by the script's arguments, does not exist.")
        config = read_config(path)
        if keys.is_ours(config):
            chosen = ScriptSource(script_args=script_args, config=config, config_argument=position)
    return chosen


def _named(arguments: tuple[str, ...]) -> list[tuple[int, Path]]:
    found = []
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if f"--{flag.lstrip('-').replace('-', '_')}" not in FLAGS or not flag.startswith("-"):
            continue
        if equals:
            found.append((index, Path(value)))
        elif index + 1 < len(arguments) and not arguments[index + 1].startswith("-"):
            found.append((index + 1, Path(arguments[index + 1])))
    return found
