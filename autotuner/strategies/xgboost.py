"""Boosted trees that correct the planner, from the first measurement on. Not: another model."""

from __future__ import annotations

from ..space import Objective
from .model_based import ModelBased
from .surrogate import by_trees


def xgboost_search(objective: Objective) -> ModelBased:
    """What the trees expect to gain most first; without predictions curves' next points."""
    return ModelBased(objective, by_trees)
