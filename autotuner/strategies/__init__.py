"""Strategies by name, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from autoconf_launch.core import (
    AutoconfError,
    ConfigError,
    installed_extensions,
    nearest_known,
    unusable_extension,
)

from ..space import OBJECTIVES, Objective
from .base import Ask, Strategy, next_number
from .belief import chance_to_fit, marginal_rows
from .micro_batch_curve import SATURATION_GAIN, CurveGains, MicroBatchCurves
from .model_based import ModelBased
from .past import PastTime, times_of
from .surrogate import MOST_SEEN, costs, learn_costs

STRATEGIES = {
    "gridsearch": "autoconf_launch.autotuner.strategies.base:grid_search",
    "random": "autoconf_launch.autotuner.strategies.base:random_search",
    "model_based": "autoconf_launch.autotuner.strategies.model_based:ModelBased",
    "xgboost": "autoconf_launch.autotuner.strategies.model_based:ModelBased",
    "optuna": "autoconf_launch.autotuner.strategies.optuna:optuna_search",
}
"""``name -> "module:attribute"``; the attribute is called with the objective and, if the name has
a colon, with the text after it. ``model_based`` and ``xgboost`` are the same tuner."""

LEARNED = ("model_based", "xgboost")
"""Names of the tuner that learns costs and draws conclusions from curves of throughput."""

_POINT = "strategy"
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
        name: in ``STRATEGIES`` or of an entry point; an argument may follow after a colon.
        objective: goal of the search.
        where: source of the name, for the error.

    Raises:
        ConfigError: no strategy has this name, an entry point cannot be used, or XGBoost is
            missing.
    """
    _check_xgboost()
    first, colon, detail = name.partition(":")
    details = (detail,) if colon else ()
    if _is_ours(name):
        module, _, attribute = STRATEGIES[first].partition(":")
        return cast(Strategy, getattr(import_module(module), attribute)(objective, *details))
    if hint := strategy_hint(name):
        raise ConfigError(f"{where} is '{name}', which is unknown; {hint}.")
    others = installed_extensions(_POINT)
    try:
        return cast(Strategy, others[name].load()(objective))
    except AutoconfError:
        raise
    except Exception as error:  # foreign code raises its own kinds of errors
        raise unusable_extension(_POINT, others[name].value, error, "the objective") from error


def strategy_hint(name: str) -> str | None:
    """The end of a sentence on an unknown name; None for a known one."""
    if _is_ours(name) or name in installed_extensions(_POINT):
        return None
    known = (*STRATEGIES, *installed_extensions(_POINT))
    near, names = nearest_known(name, known), f"known: {', '.join(sorted(known))}"
    return names if near.startswith("known") else f"{near} ({names})"


def _is_ours(name: str) -> bool:
    first, colon, _ = name.partition(":")
    return first in STRATEGIES and (not colon or first in _DETAILED)


def _check_xgboost() -> None:
    """Import XGBoost, which every search learns with.

    Raises:
        ConfigError: it is missing or broken.
    """
    try:
        import_module("xgboost")
    except Exception as error:  # a broken library raises its own kinds of errors
        why = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"The search needs XGBoost, which cannot be imported ({why}); install it with "
            "pip install xgboost-cpu."
        ) from error
