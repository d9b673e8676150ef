"""Decides what to try next, from values alone: no files, clocks, processes or torch.

Its names are imported when they are first used, so that who asks for one waits for no other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batches import GlobalBatchRule
    from .choices import ChoiceKind, KnobChoice
    from .cluster import ClusterSpec, Device, Node
    from .cost.facts import TrainingFacts
    from .knobs import candidate_name
    from .objective import OBJECTIVES, Objective
    from .planner import memory_rule, predict
    from .settings import AutotuningSettings, parse_settings
    from .space import SearchSpace, build_space
    from .strategies import Strategy, load_strategy
    from .study import StopKind, StopReason, Study, baseline_trial
    from .summary import Summary, SummaryRow, summarise, summarise_records
    from .table import CandidateTable, PredictionTable
    from .trial import FailedTrial, Measurement, Outcome, Prediction, Record, Trial

_HOME = {
    "AutotuningSettings": "settings",
    "CandidateTable": "table",
    "ChoiceKind": "choices",
    "ClusterSpec": "cluster",
    "Device": "cluster",
    "FailedTrial": "trial",
    "GlobalBatchRule": "batches",
    "KnobChoice": "choices",
    "Measurement": "trial",
    "Node": "cluster",
    "OBJECTIVES": "objective",
    "Objective": "objective",
    "Outcome": "trial",
    "Prediction": "trial",
    "PredictionTable": "table",
    "Record": "trial",
    "SearchSpace": "space",
    "StopKind": "study",
    "StopReason": "study",
    "Strategy": "strategies",
    "Study": "study",
    "Summary": "summary",
    "SummaryRow": "summary",
    "TrainingFacts": "cost.facts",
    "Trial": "trial",
    "baseline_trial": "study",
    "build_space": "space",
    "candidate_name": "knobs",
    "load_strategy": "strategies",
    "memory_rule": "planner",
    "parse_settings": "settings",
    "predict": "planner",
    "summarise": "summary",
    "summarise_records": "summary",
}

__all__ = [
    "OBJECTIVES",
    "AutotuningSettings",
    "CandidateTable",
    "ChoiceKind",
    "ClusterSpec",
    "Device",
    "FailedTrial",
    "GlobalBatchRule",
    "KnobChoice",
    "Measurement",
    "Node",
    "Objective",
    "Outcome",
    "Prediction",
    "PredictionTable",
    "Record",
    "SearchSpace",
    "StopKind",
    "StopReason",
    "Strategy",
    "Study",
    "Summary",
    "SummaryRow",
    "TrainingFacts",
    "Trial",
    "baseline_trial",
    "build_space",
    "candidate_name",
    "load_strategy",
    "memory_rule",
    "parse_settings",
    "predict",
    "summarise",
    "summarise_records",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
