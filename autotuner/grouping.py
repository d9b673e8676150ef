"""What a study explores as a unit: each ZeRO stage by itself, or all of them together.

Not: in which order, nor when a unit is done (Study).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import Layout

from .settings import AutotuningSettings
from .stage import StageProgress, space_name
from .table import CandidateTable, Ints

_EVERYTHING = 0
_STAGED = ("gridsearch", "random", "xgboost")
"""Tuners that go through the stages as those of the DeepSpeed Autotuner do."""
CURVES = "model_based"
"""The tuner that draws conclusions from curves of throughput; others try what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups have numbers; ``staged``: those of the ZeRO stages, otherwise there is one.

    ``to_the_knee``: micro-batches beyond the knee of throughput are left out.
    """

    staged: bool
    to_the_knee: bool = False

    @staticmethod
    def of_settings(settings: AutotuningSettings) -> Grouping:
        """As asked; else stage by stage where DeepSpeed has the tuner, but for the default.

        Over recorded landscapes a model that ranks all stages needed 5 trials where stage after
        stage needed 8 (``benchmarks/results/search_landscapes.md``).
        """
        staged = settings.tuner_type in _STAGED
        if settings.strategy is not None:
            staged = settings.strategy == "staged"
        return Grouping(staged=staged, to_the_knee=settings.tuner_type == CURVES)

    def of(self, layout: Layout) -> int:
        """The group of a layout."""
        return layout.zero_stage if self.staged else _EVERYTHING

    def of_rows(self, table: CandidateTable) -> Ints:
        """The group of each row."""
        return table["zero_stage"] if self.staged else np.full(len(table), _EVERYTHING, np.int64)

    def start(self, group: int) -> StageProgress:
        """A group of which nothing is known."""
        return StageProgress(name=space_name(group) if self.staged else "global")
