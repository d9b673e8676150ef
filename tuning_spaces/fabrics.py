"""Networks between nodes; each is a row of ``hardware/fabrics.csv``."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from autoconf_launch.core import ConfigError, nearest_known

if TYPE_CHECKING:  # flags read the names without numpy, which the cost model imports
    from autoconf_launch.autotuner.cost import Fabric

_FILE = Path(__file__).parent / "hardware" / "fabrics.csv"
_OVERSUBSCRIBED = re.compile(r"oversubscribed[\s-]+(\d{1,3}(?:\.\d+)?):1")


def fabric_names() -> tuple[str, ...]:
    """Names of the networks between nodes."""
    return tuple(_rows())


def fabric(name: str) -> Fabric:
    """A network by its name; ``oversubscribed`` takes any ratio, such as 3:1.

    Raises:
        ConfigError: the name is unknown.
    """
    from autoconf_launch.autotuner.cost import Fabric

    plain = name.strip().lower()
    ratio = _OVERSUBSCRIBED.fullmatch(plain)
    if ratio and float(ratio[1]) >= 1.0:
        return Fabric(spine=1.0 / float(ratio[1]))
    if plain not in _rows():
        raise ConfigError(f"Fabric {name!r} is unknown; {nearest_known(plain, _rows())}")
    row = _rows()[plain]
    return Fabric(
        rate=float(row["rate"]),
        spine=float(row["spine"]),
        hop=float(row["hop"]),
        has_rails=row["rails"] == "1",
    )


@cache
def _rows() -> Mapping[str, Mapping[str, str]]:
    with _FILE.open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}
