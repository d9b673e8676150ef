"""Learning-rate schedules by DeepSpeed's names and parameters.

Formulas: DeepSpeed's documented schedules. Optimizer step n, counted from 0, runs at the rate
of iteration n (DeepSpeed repeats the first rate once, so it is one step behind).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch.optim import Optimizer

from autoconf_launch.core import ConfigError, SchedulerConfig, nearest_known

_RateFunction: TypeAlias = Callable[[int, float], float]
"""From an iteration and the optimizer's own rate to the rate to use."""


class Schedule:
    """Sets an optimizer's rate for the step to come."""

    def __init__(self, optimizer: Optimizer, rate: _RateFunction) -> None:
        self._optimizer = optimizer
        self._rate = rate
        self._own_rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._iteration = -1
        self.advance()

    @property
    def iteration(self) -> int:
        """The optimizer step to come, from 0."""
        return self._iteration

    def go_to(self, iteration: int) -> None:
        """Set the rate of this optimizer step."""
        self._iteration = iteration - 1
        self.advance()

    def advance(self) -> None:
        """Go on to the next optimizer step."""
        self._iteration += 1
        for group, own in zip(self._optimizer.param_groups, self._own_rates, strict=True):
            group["lr"] = self._rate(self._iteration, own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """Progress of a warm-up: 0 at its start, 1 from its end on."""

    steps: int
    kind: str = "log"

    def progress(self, iteration: int) -> float:
        """Linear in the iteration, or in its logarithm."""
        if iteration >= self.steps:
            return 1.0
        if self.kind == "linear":
            return iteration / self.steps
        return math.log(iteration + 1) / math.log(max(2, self.steps))


def build_schedule(config: SchedulerConfig | None, optimizer: Optimizer) -> Schedule | None:
    """The schedule that a configuration asks for.

    Raises:
        ConfigError: a parameter is unknown, missing or of a wrong kind.
    """
    if config is None:
        return None
    return Schedule(optimizer, rate_of(config))


def rate_of(config: SchedulerConfig) -> _RateFunction:
    """The rule of a schedule only; see :func:`build_schedule`."""
    make, known = _KINDS[config.kind]
    for name, value in config.parameters:
        if name not in known:
            raise ConfigError(f"scheduler.params.{name} is unknown; {nearest_known(name, known)}")
        _check(name, value)
    given = {**known, **dict(config.parameters)}
    if given.get("total_num_steps", 0) is None:
        raise ConfigError(f"scheduler.params.total_num_steps is missing; {config.kind} needs it.")
    return make(given)


def _check(name: str, value: Any) -> None:
    if name == "warmup_type":
        if value not in ("log", "linear"):
            raise ConfigError(f'scheduler.params.{name} is {value!r}; use "log" or "linear".')
    elif isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise ConfigError(
            f"scheduler.params.{name} is {value!r}, but must be a number of at least 0."
        )


def _warmup(given: dict[str, Any]) -> Warmup:
    return Warmup(steps=int(given["warmup_num_steps"]), kind=given["warmup_type"])


def _warmup_lr(given: dict[str, Any]) -> _RateFunction:
    least, most, warmup = given["warmup_min_lr"], given["warmup_max_lr"], _warmup(given)
    return lambda iteration, _: least + (most - least) * warmup.progress(iteration)


def _warmup_decay_lr(given: dict[str, Any]) -> _RateFunction:
    least, most, warmup = given["warmup_min_lr"], given["warmup_max_lr"], _warmup(given)
    total = int(given["total_num_steps"])

    def rate(iteration: int, _: float) -> float:
        if iteration < warmup.steps:
            return float(least + (most - least) * warmup.progress(iteration))
        left = max(0.0, (total - iteration) / max(1, total - warmup.steps))
        return float(least + (most - least) * left)

    return rate


def _warmup_cosine_lr(given: dict[str, Any]) -> _RateFunction:
    first, last, warmup = given["warmup_min_ratio"], given["cos_min_ratio"], _warmup(given)
    decay_steps = max(1, int(given["total_num_steps"]) - warmup.steps)

    def rate(iteration: int, own: float) -> float:
        if iteration < warmup.steps:
            return float(own * (first + (1 - first) * warmup.progress(iteration)))
        done = min(1.0, (iteration - warmup.steps + 1) / decay_steps)
        return float(own * (last + (1 - last) * (1 + math.cos(math.pi * done)) / 2))

    return rate


_WARMUP = {"warmup_num_steps": 1000, "warmup_type": "log"}
_BOUNDS = {"warmup_min_lr": 0.0, "warmup_max_lr": 0.001}
_KINDS: dict[str, tuple[Callable[[dict[str, Any]], _RateFunction], dict[str, Any]]] = {
    "WarmupLR": (_warmup_lr, {**_WARMUP, **_BOUNDS}),
    "WarmupDecayLR": (_warmup_decay_lr, {**_WARMUP, **_BOUNDS, "total_num_steps": None}),
    "WarmupCosineLR": (
        _warmup_cosine_lr,
        {**_WARMUP, "warmup_min_ratio": 0.0, "cos_min_ratio": 0.0001, "total_num_steps": None},
    ),
}
