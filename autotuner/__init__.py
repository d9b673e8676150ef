"""Decides what to try next, from values alone: no files, clocks, processes or torch."""

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
