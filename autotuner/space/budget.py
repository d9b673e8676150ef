"""What a search may cost, and shares of a gain.

``20m``, ``1h30m``, ``90s`` are time; ``30trials`` is a number of trials, the one of the user's own
configuration included; ``$15`` is money, which is time at the price of the machine.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from autoconf_launch.core import ConfigError

_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "min": 60.0, "s": 1.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)")
_TIME = re.compile(rf"(?:{_PART.pattern}\s*)+")
_TRIALS = re.compile(r"(\d+)\s*trials?")
_MONEY = re.compile(r"\$\s*(\d+(?:\.\d+)?)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """The limits that were given; None where there is none."""

    seconds: float | None = None
    trials: int | None = None
    usd: float | None = None

    def limit_s(self, usd_per_hour: float | None) -> float | None:
        """Seconds until time or money is spent; None where neither is limited.

        Args:
            usd_per_hour: price of the whole machine.

        Raises:
            ConfigError: money is limited and the machine has no price.
        """
        if self.usd is None:
            return self.seconds
        if not usd_per_hour:
            raise ConfigError(
                f"--budget is ${self.usd:g}, but the price of this machine is not known; give a "
                "time, such as --budget 20m."
            )
        paid_s = 3600.0 * self.usd / usd_per_hour
        return paid_s if self.seconds is None else min(self.seconds, paid_s)


def parse_budget(text: str) -> SearchBudget:
    """Read one limit, or several with commas between them.

    Raises:
        ConfigError: a part is of no known form, or is nothing.
    """
    limits: dict[str, float] = {}
    for part in text.lower().split(","):
        kind, amount = _limit(part.strip(), text)
        limits[kind] = min(amount, limits.get(kind, math.inf))
    trials = limits.get("trials")
    return SearchBudget(
        seconds=limits.get("seconds"),
        trials=None if trials is None else int(trials),
        usd=limits.get("usd"),
    )


def _limit(part: str, text: str) -> tuple[str, float]:
    found: tuple[str, float] | None = None
    if _TIME.fullmatch(part):
        found = "seconds", sum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(part))
    elif match := _TRIALS.fullmatch(part):
        found = "trials", float(match[1])
    elif match := _MONEY.fullmatch(part):
        found = "usd", float(match[1])
    if found is None:
        raise ConfigError(
            f"--budget is {text!r}, but must be a time (90s, 20m, 1h30m), a number of trials "
            "(30trials), money ($15), or several of them separated by commas."
        )
    if not found[1]:
        raise ConfigError(
            f"--budget is {text!r}, but must be more than zero; omit it for no limit."
        )
    return found


_ROUND = ((90.0, 30.0, 1.0, "s"), (600.0, 60.0, 60.0, "m"), (3_600.0, 300.0, 60.0, "m"))
"""Up to how many seconds a budget is rounded to which multiple, and its unit in seconds."""


def longer_budget(seconds: float) -> str:
    """The shortest round time of at least so many seconds, as ``--budget`` takes it."""
    hours = (math.inf, 3_600.0, 3_600.0, "h")
    _, step_s, unit_s, unit = next(row for row in (*_ROUND, hours) if seconds <= row[0])
    return f"{max(1, math.ceil(seconds / step_s)) * step_s / unit_s:.0f}{unit}"


def parse_share(text: str, flag: str) -> float:
    """``2%`` or ``0.02`` as 0.02.

    Raises:
        ConfigError: it is not a share between 0 and 1.
    """
    match = _SHARE.fullmatch(text.strip())
    share = float(match[1]) / (100.0 if match[2] else 1.0) if match else math.nan
    if not 0.0 <= share < 1.0:
        raise ConfigError(f"{flag} is {text!r}, but must be a share such as 2% or 0.02.")
    return share
