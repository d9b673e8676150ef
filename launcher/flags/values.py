"""Readers of flags' values, as argparse calls them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TypeVar

from autoconf_launch.autotuner.space import SearchBudget, parse_budget, parse_share
from autoconf_launch.core import ConfigError

from ..request import OwnKnob, Processes

_T = TypeVar("_T")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_WORDS: dict[str, Processes] = {"gpu": "gpu", "cpu": "cpu", "auto": "auto"}
_UNSET = "-1"  # DeepSpeed's way to say that a count is not given


def parse_bytes(text: str) -> int:
    """Bytes of ``2GB``, ``512MiB``, ``1.5g``; decimal unless written with an i."""
    if re.fullmatch(_NUMBER, text.strip()):
        raise argparse.ArgumentTypeError(
            f"{text!r} has no unit; write for example {text.strip()}GB"
        )
    match = re.fullmatch(rf"({_NUMBER})\s*([kmgt]?i?)b?", text.strip().lower())
    unit = {**_UNITS, **_BINARY}.get(match[2]) if match else None
    size = int(float(match[1]) * unit) if match and unit else 0
    if size <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size; write for example 2GB or 512MiB"
        )
    return size


def parse_seconds(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``10m``, ``1h``."""
    match = re.fullmatch(rf"({_NUMBER})([smh]?)", text.strip().lower())
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write for example 90, 90s or 10m"
        )
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def parse_count(text: str) -> int | None:
    """A whole number of at least 1; DeepSpeed's -1 leaves it open."""
    return None if text == _UNSET else _whole(text, least=1)


def parse_search_budget(text: str) -> SearchBudget:
    """See :func:`autoconf_launch.autotuner.space.budget.parse_budget`."""
    return _parse_or_explain(parse_budget, text)


def parse_gain(text: str) -> float:
    """``2%`` or ``0.02`` as 0.02."""
    return _parse_or_explain(lambda given: parse_share(given, "--good-enough"), text)


def _parse_or_explain(parse: Callable[[str], _T], text: str) -> _T:
    try:
        return parse(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from error


def parse_steps(text: str) -> int:
    """A whole number of at least 0."""
    return _whole(text, least=0)


def parse_trackers(text: str) -> tuple[str, ...]:
    """Names between commas, each once; ``none`` stands alone for no tracker."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    if "" in names or ("none" in names and len(names) > 1):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be names of trackers with commas between them, or just none"
        )
    return () if names == ("none",) else names


def parse_node_rank(text: str) -> int | None:
    """A whole number of at least 0; DeepSpeed's -1 leaves it open."""
    return None if text == _UNSET else _whole(text, least=0)


def parse_processes(text: str) -> Processes | None:
    """A count, or torchrun's ``gpu``, ``cpu``, ``auto``."""
    return _WORDS[text] if text in _WORDS else parse_count(text)


def parse_nodes(text: str) -> int | None:
    """A count, or torchrun's range ``N:N``, whose ends must be equal."""
    least, colon, most = text.partition(":")
    if colon and least != most:
        raise argparse.ArgumentTypeError(
            f"{text!r} is a range, but a launch has a fixed number of hosts; give one number"
        )
    return parse_count(least)


def parse_port(text: str) -> int:
    """A TCP port."""
    if not re.fullmatch("[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} must be a port from 1 to 65535")
    return int(text)


def parse_endpoint(text: str) -> tuple[str, int | None]:
    """``HOST[:PORT]``; an IPv6 address stands in brackets."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\s:\[\]]+))(?::([0-9]+))?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} must be HOST:PORT")
    return match[1] or match[2], parse_port(match[3]) if match[3] else None


def parse_name(text: str) -> tuple[str, str]:
    """``KEY=FLAG``: a canonical key and the script's own argument for it."""
    key, equals, flag = (part.strip() for part in text.partition("="))
    if not (key and equals and flag):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be KEY=FLAG, such as train_micro_batch_size_per_gpu=--batch_size"
        )
    return key, flag


def parse_knob(text: str) -> OwnKnob:
    """``NAME=[value, ...]``: an argument, variable or key with the values to search."""
    import yaml  # --help does not wait for it

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
    return OwnKnob(name=name, values=tuple(values))


def parse_restarts(text: str) -> int:
    """Nothing but 0."""
    if text != "0":
        raise argparse.ArgumentTypeError(
            f"{text!r} must be 0: a failed rank ends the launch, and nothing starts it again"
        )
    return 0


def _whole(text: str, *, least: int) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least {least}")
    return int(text)
