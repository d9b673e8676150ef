"""Strategies by name, imported when they are asked for. Not: their search (one module each)."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from autoconf_launch.core import ConfigError, nearest_known

from ..space import OBJECTIVES, Objective
from .base import Strategy, next_number
from .belief import chance_to_fit, marginal_rows
from .micro_batch_curve import SATURATION_GAIN, CurveGains, MicroBatchCurves
from .model_based import ModelBased
from .past import PastTime, times_of
from .surrogate import MOST_SEEN, by_process, costs

STRATEGIES = {
    "gridsearch": "autoconf_launch.autotuner.strategies.base:grid_search",
    "random": "autoconf_launch.autotuner.strategies.base:random_search",
    "model_based": "autoconf_launch.autotuner.strategies.model_based:ModelBased",
    "xgboost": "autoconf_launch.autotuner.strategies.model_based:xgboost_search",
    "optuna": "autoconf_launch.autotuner.strategies.optuna:optuna_search",
}
"""``name -> "module:attribute"``; the attribute is called with the objective, and with what
stands after a colon in the name, where something does."""

_ENTRY_POINTS = "autoconf_launch.strategy"
"""Group in which other packages register theirs, with the same kind of value."""

_DETAILED = ("optuna",)
"""Names that may have more after a colon."""


def load_strategy(
    name: str,
    objective: Objective = OBJECTIVES["throughput"],
    *,
    where: str = "autotuning.tuner_type",
) -> Strategy:
    """A strategy by the name in the user's settings, such as ``optuna:TPESampler``.

    Args:
        name: in ``STRATEGIES`` or of an entry point; after a colon what it is to be made with.
        objective: what is optimised.
        where: the name was given, for the error.

    Raises:
        ConfigError: no strategy has this name; the known ones are named.
    """
    first, colon, detail = name.partition(":")
    details = (detail,) if colon else ()
    if first in STRATEGIES and (not colon or first in _DETAILED):
        module, _, attribute = STRATEGIES[first].partition(":")
        return cast(Strategy, getattr(import_module(module), attribute)(objective, *details))
    others = _others()
    if name not in others:
        known = (*STRATEGIES, *others)
        near, names = nearest_known(name, known), f"known: {', '.join(sorted(known))}"
        hint = names if near.startswith("known") else f"{near} ({names})"
        raise ConfigError(f"{where} is '{name}', which is unknown; {hint}")
    return cast(Strategy, others[name].load()(objective))


def _others() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=_ENTRY_POINTS)}
