"""Units of a launch: processes, hosts, ports, cores, knobs and trackers."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypeVar

from autoconf_launch.autotuner.space import SearchBudget, parse_budget, parse_share
from autoconf_launch.core import ConfigError, KnobValue

from .units import SHARE, ValueUnit, at_least, refuse_as, refuse_other_than_pairs

Processes: TypeAlias = int | Literal["gpu", "cpu", "auto"]
"""Ranks on each host; ``gpu``: one per GPU, ``cpu``: one per core, ``auto``: the first of them."""
_T = TypeVar("_T")
_UNSET = "-1"  # DeepSpeed's way to say that a count is not given
_WORDS: dict[str, Processes] = {"gpu": "gpu", "cpu": "cpu", "auto": "auto"}
COUNT = at_least(1, unset=_UNSET)
"""DeepSpeed's -1 leaves it open."""
NODE_RANK = at_least(0, "K", unset=_UNSET)


def _reader_of(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    """A reader whose errors argparse completes."""

    def read(text: str) -> _T:
        try:
            return parse(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error).rstrip(".")) from error

    return read


def _read_processes(text: str) -> Processes | None:
    """A count, or torchrun's ``gpu``, ``cpu``, ``auto``."""
    count: int | None = None if text in _WORDS else COUNT.read(text)
    return _WORDS.get(text, count)


def _read_nodes(text: str) -> int | None:
    """A count, or torchrun's range ``N:N``, whose ends must be equal."""
    least, colon, most = text.partition(":")
    if colon and least != most:
        raise argparse.ArgumentTypeError(
            f"{text!r} is a range, but a launch has a fixed number of hosts; give one number"
        )
    count: int | None = COUNT.read(least)
    return count


def _read_port(text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} must be a port from 1 to 65535")
    return int(text)


def _read_endpoint(text: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\s:\[\]]+))(?::([0-9]+))?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} must be HOST:PORT")
    return match[1] or match[2], _read_port(match[3]) if match[3] else None


def _read_words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(
            f"--launcher_args is {text!r}, which no shell could read: {error}."
        ) from None


def _read_name(text: str) -> tuple[str, str]:
    """``KEY=FLAG``: a canonical key and the script's own argument for it."""
    key, equals, flag = (part.strip() for part in text.partition("="))
    if not (key and equals and flag):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be KEY=FLAG, such as train_micro_batch_size_per_gpu=--batch_size"
        )
    return key, flag


def _read_knob(text: str) -> tuple[str, tuple[KnobValue, ...]]:
    """``NAME=[value, ...]``: an argument, variable or key with the values to search."""
    import yaml  # which --help does without

    name, _, listed = (part.strip() for part in text.partition("="))
    try:
        values = yaml.safe_load(listed) if listed else None
    except yaml.YAMLError:
        values = None
    plain = isinstance(values, list) and not any(isinstance(v, (list, dict)) for v in values)
    if not name or not plain or not values:
        raise argparse.ArgumentTypeError(
            f"{text!r} has no list of values; write for example '--num_workers=[0,2,4]'"
        )
    return name, tuple(values)


def _read_trackers(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    if "" in names or ("none" in names and len(names) > 1):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be names of trackers with commas between them, or just none"
        )
    return () if names == ("none",) else names


def _read_restarts(text: str) -> int:
    if text != "0":
        raise argparse.ArgumentTypeError(
            f"{text!r} must be 0: a failed rank ends the launch, and nothing starts it again"
        )
    return 0


def _read_cores(text: str) -> tuple[int, ...]:
    """Cores of ``0,2-4,6``, ascending.

    Raises:
        ConfigError: another form, a range that runs backwards, cores twice or out of order.
    """
    cores: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part.strip())
        if not match:
            raise _core_list_error(text, f"{part!r} is neither a core nor a range")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise _core_list_error(text, f"range {part} runs backwards")
        if cores and first <= cores[-1]:
            raise _core_list_error(text, f"{part} does not lie above core {cores[-1]}")
        cores += range(first, last + 1)
    return tuple(cores)


def _core_list_error(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"--bind_core_list is {text!r}, but {why}; write ascending cores and ranges: 0,2-4,6"
    )


def _refuse_names(value: Any) -> str | None:
    is_pairs = not refuse_other_than_pairs(value) and all(isinstance(v, str) for _, v in value)
    return None if is_pairs else "it must be pairs of a key and a flag, or texts KEY=FLAG"


def _refuse_knobs(value: Any) -> str | None:
    is_pairs = not refuse_other_than_pairs(value) and all(
        isinstance(values, (list, tuple))
        and values
        and all(one is None or isinstance(one, (str, int, float)) for one in values)
        for _, values in value
    )
    return None if is_pairs else "it must be pairs of a name and its values to search"


def _refuse_budget(value: Any) -> str | None:
    is_budget = isinstance(value, SearchBudget)
    return None if is_budget else "it must be a SearchBudget, or text such as '20m' or '30trials'"


def _cores_text(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores))


PROCESSES = replace(COUNT, read=_read_processes, refuse=refuse_as(_read_processes))
NODES = ValueUnit(metavar="N", read=_read_nodes)
PORT = ValueUnit(metavar="PORT", read=_read_port)
ENDPOINT = ValueUnit(metavar="HOST:PORT", read=_read_endpoint)
ARGUMENTS = ValueUnit(metavar="'ARGS'", read=_read_words, write=shlex.join)
CORES = ValueUnit(metavar="0,2-4", read=_read_cores, write=_cores_text)
KEY_FLAG = ValueUnit(metavar="KEY=FLAG", read=_read_name, refuse=_refuse_names, action="append")
KNOB = ValueUnit(metavar="NAME=[...]", read=_read_knob, refuse=_refuse_knobs, action="append")
TRACKER_NAMES = ValueUnit(metavar="NAMES", read=_read_trackers)
RESTARTS = ValueUnit(metavar="0", read=_read_restarts)
BUDGET = ValueUnit(metavar="LIMIT", read=_reader_of(parse_budget), refuse=_refuse_budget)
GAIN = replace(
    SHARE, metavar="SHARE", read=_reader_of(lambda text: parse_share(text, "--good-enough"))
)
