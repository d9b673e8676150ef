"""Strategies by name, imported when they are asked for. Not: their search (one module each)."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from autoconf_launch.core import ConfigError, nearest_known

from ..objective import OBJECTIVES, Objective
from .base import Strategy

STRATEGIES = {
    "gridsearch": "autoconf_launch.autotuner.strategies.grid:GridSearch",
    "random": "autoconf_launch.autotuner.strategies.random:RandomSearch",
    "model_based": "autoconf_launch.autotuner.strategies.model_based:ModelBased",
}
"""``name -> "module:attribute"``; the attribute is called with the objective."""

ENTRY_POINTS = "autoconf_launch.strategy"
"""Group in which other packages register theirs, with the same kind of value."""

__all__ = ["ENTRY_POINTS", "STRATEGIES", "Strategy", "load_strategy"]


def load_strategy(name: str, objective: Objective = OBJECTIVES["throughput"]) -> Strategy:
    """A strategy by the name in the user's settings.

    Raises:
        ConfigError: no strategy has this name; the nearest one is named.
    """
    if name in STRATEGIES:
        module, _, attribute = STRATEGIES[name].partition(":")
        return cast(Strategy, getattr(import_module(module), attribute)(objective))
    others = _others()
    if name not in others:
        known = nearest_known(name, (*STRATEGIES, *others))
        raise ConfigError(f"autotuning.tuner_type is '{name}', which is unknown; {known}")
    return cast(Strategy, others[name].load()(objective))


def _others() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
