"""The launcher's own flags to a LaunchRequest. Not: the script's arguments, which pass untouched.

``-`` and ``_`` are equal in flag names; every key of the autotuning section is a flag, too.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.core import ConfigError, nearest_known

from .request import LaunchRequest

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_NOT_FLAGS = frozenset({"arg_mappings", "enabled"})
_BOOLEANS = frozenset(
    name for name, field in AutotuningSettings.model_fields.items() if field.annotation is bool
)


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing and leaving; unknown flags get the nearest known one."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message[0].upper() + message[1:] + ".")


def parse_request(argv: Sequence[str]) -> LaunchRequest:
    """Read a command line.

    Raises:
        ConfigError: an unknown flag, a wrong value, flags that exclude each other, no script.
    """
    parser = _parser()
    own, rest = _split(parser, list(argv))
    flags = parser.parse_args(own)
    if not rest:
        raise ConfigError(
            "No script was given; use: autoconf-launch [flags] script.py [its arguments]."
        )
    _check(flags)
    return LaunchRequest(
        script=rest[0],
        script_args=tuple(rest[1:]),
        kind="module" if flags.module else "program" if flags.no_python else "script",
        processes=flags.num_gpus,
        master_addr=flags.master_addr,
        master_port=flags.master_port,
        local_rank_argument=not flags.no_local_rank,
        autotuning=flags.autotuning,
        overrides=_overrides(flags),
        fresh=flags.fresh,
        allow_global_batch_change=flags.allow_global_batch_change,
        memory_limit_bytes=flags.memory_limit,
        trial_timeout_s=flags.trial_timeout,
        stall_timeout_s=flags.stall_timeout,
        quiet=flags.quiet,
        log_level="error" if flags.quiet else flags.log_level,
        argv=tuple(argv),
    )


def usage() -> str:
    """The help text."""
    return _parser().format_help()


def _check(flags: argparse.Namespace) -> None:
    if flags.module and flags.no_python:
        raise ConfigError("--module and --no_python exclude each other; give one of them.")
    if flags.num_nodes != 1:
        raise ConfigError(
            f"--num_nodes is {flags.num_nodes}, but only this machine can be used so far; "
            "leave it at 1."
        )


def _overrides(flags: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    given = ((name, getattr(flags, name, None)) for name in AutotuningSettings.model_fields)
    return tuple((name, value) for name, value in given if value is not None)


def _split(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[list[str], list[str]]:
    """Our flags, normalised, and the script with everything after it."""
    actions = parser._option_string_actions
    own: list[str] = []
    index = 0
    while index < len(argv) and argv[index].startswith("-") and argv[index] != "--":
        name, equals, value = argv[index].partition("=")
        flag = name.replace("-", "_").replace("__", "--", 1) if name.startswith("--") else name
        if flag not in actions:
            raise ConfigError(f"Unknown flag {name}; {nearest_known(flag, actions)}")
        following = argv[index + 1] if index + 1 < len(argv) else None
        if equals or not _takes_value(actions[flag], following):
            own.append(f"{flag}={value}" if equals else flag)
        elif following is not None:
            own.append(f"{flag}={following}")
            index += 1
        else:
            raise ConfigError(f"{name} needs a value.")
        index += 1
    return own, argv[index + (index < len(argv) and argv[index] == "--") :]


def _takes_value(action: argparse.Action, following: str | None) -> bool:
    if action.nargs == "?":
        return following in ("true", "false")
    return action.nargs != 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="autoconf-launch",
        usage="autoconf-launch [flags] [--autotuning {tune,run}] script.py [arguments]",
        description="Launch a training, or find its best configuration first.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    launch = parser.add_argument_group("launch")
    launch.add_argument("--num_gpus", "--num_accelerators", type=_count, metavar="N")
    launch.add_argument("--num_nodes", type=_count, default=1, metavar="N")
    launch.add_argument("--master_addr", default="127.0.0.1", metavar="HOST")
    launch.add_argument("--master_port", type=_port, metavar="PORT")
    launch.add_argument("--module", action="store_true", help="the script is a module's name")
    launch.add_argument("--no_python", action="store_true", help="the script is a program")
    launch.add_argument("--no_local_rank", action="store_true", help="add no --local_rank=N")
    add("-q", "--quiet", action="store_true")
    add("--log_level", choices=("debug", "info", "warning", "error", "critical"), default="info")
    _add_tuning(parser.add_argument_group("tuning"))
    return parser


def _add_tuning(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--autotuning", choices=("tune", "run"))
    group.add_argument("--fresh", action="store_true", help="move old results aside")
    group.add_argument("--allow_global_batch_change", action="store_true")
    group.add_argument("--memory_limit", type=parse_bytes, metavar="SIZE", help="per rank: 2GB")
    group.add_argument("--trial_timeout", type=_seconds, default=600.0, metavar="S")
    group.add_argument("--stall_timeout", type=_seconds, default=120.0, metavar="S")
    for name in AutotuningSettings.model_fields:
        if name in _BOOLEANS - _NOT_FLAGS:
            group.add_argument(f"--{name}", nargs="?", const="true", metavar="true|false")
        elif name not in _NOT_FLAGS:
            group.add_argument(f"--{name}", metavar="VALUE")


def parse_bytes(text: str) -> int:
    """Bytes of ``2GB``, ``512MiB``, ``1.5g``; decimal unless written with an i."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    unit = {**_UNITS, **_BINARY}.get(match[2]) if match else None
    size = int(float(match[1]) * unit) if match and unit else 0
    if size <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write for example 2GB or 512MiB")
    return size


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} must be a port from 1 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip().lower())
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write for example 90, 90s or 10m")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
