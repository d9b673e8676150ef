"""What a long training loses beside its steps, by assumptions that are seen. Not: step times.

Each one has a name that ``--assume NAME=VALUE`` changes; none is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from autoconf_launch.core import ConfigError, nearest_known

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Assumptions; times in the units of their names.

    Attributes:
        gpu_hours_between_failures: one interruption of the job each so many hours of one GPU.
        restart_s: from a failure to the first step after it.
        checkpoint_every_s: half of it is lost at each failure.
        checkpoint_s: how long training stands while one is written.
        evaluation_share: of all time.
        other_share: stalls of data, slow nodes, planned stops.
    """

    gpu_hours_between_failures: float = 50_000.0
    restart_s: float = 900.0
    checkpoint_every_s: float = 3600.0
    checkpoint_s: float = 60.0
    evaluation_share: float = 0.01
    other_share: float = 0.02

    def share(self, gpus: int) -> float:
        """Part of all time that goes into steps that last, above 0 and at most 1."""
        saving = self.checkpoint_every_s / (self.checkpoint_every_s + self.checkpoint_s)
        failures_per_s = gpus / (self.gpu_hours_between_failures * _HOUR_S)
        again = 1.0 + failures_per_s * (self.restart_s + self.checkpoint_every_s / 2)
        return saving / again * (1.0 - self.evaluation_share - self.other_share)


WHY: Mapping[str, str] = MappingProxyType(
    {
        "gpu_hours_between_failures": "419 unexpected interruptions in 54 days of 16384 GPUs are "
        "one in 50700 GPU hours (Dubey et al. 2024, The Llama 3 Herd of Models, section 3.3.4)",
        "restart_s": "assumed: scheduling, loading and compiling",
        "checkpoint_every_s": "assumed: one an hour",
        "checkpoint_s": "assumed: training waits while it is written",
        "evaluation_share": "assumed",
        "other_share": "assumed: stalls of data, slow nodes, planned stops",
    }
)
_SHARES = frozenset({"evaluation_share", "other_share"})
_MOST_SHARE = 0.45


def changed(goodput: Goodput, name: str, value: float) -> Goodput:
    """The same with one assumption set.

    Raises:
        ConfigError: the name is unknown, or the value is out of range.
    """
    if name not in WHY:
        raise ConfigError(f"Assumption {name!r} is unknown; {nearest_known(name, WHY)}")
    most = _MOST_SHARE if name in _SHARES else 1e12
    least = 0.0 if name in _SHARES or name in ("restart_s", "checkpoint_s") else 1e-9
    if not least <= value <= most:
        raise ConfigError(f"Assumption {name} is {value:g}, but must be {least:g} to {most:g}.")
    return replace(goodput, **{name: value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Days where one assumption is half and twice as large, all others as they are."""

    name: str
    value: float
    days_at_half: float
    days_at_double: float


def sensitivities(goodput: Goodput, gpus: int, days: float) -> tuple[Sensitivity, ...]:
    """One for each assumption, the one that moves most first.

    Args:
        goodput: as assumed.
        gpus: of the training.
        days: of steps alone.
    """

    def days_with(name: str, factor: float) -> float:
        value = getattr(goodput, name) * factor
        return days / changed(goodput, name, min(value, _limit(name))).share(gpus)

    found = [
        Sensitivity(
            name=field.name,
            value=getattr(goodput, field.name),
            days_at_half=days_with(field.name, 0.5),
            days_at_double=days_with(field.name, 2.0),
        )
        for field in fields(goodput)
    ]
    return tuple(sorted(found, key=lambda one: -abs(one.days_at_double - one.days_at_half)))


def _limit(name: str) -> float:
    return _MOST_SHARE if name in _SHARES else 1e12
