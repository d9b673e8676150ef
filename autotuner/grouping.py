"""What a study explores as a unit: each ZeRO stage by itself, or all of them together.

Not: in which order, nor when a unit is done (Study).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import Layout

from .limits import FEWEST_TRIALS
from .settings import AutotuningSettings
from .stage import StageProgress, space_name
from .table import CandidateTable, Ints

_EVERYTHING = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups have numbers; ``staged``: those of the ZeRO stages, otherwise there is one."""

    staged: bool

    @staticmethod
    def of_settings(settings: AutotuningSettings) -> Grouping:
        """As asked; else together where the tuner ranks by more than a fixed order.

        Over recorded landscapes a model that ranks all stages needed 5 trials where stage after
        stage needed 8 (``benchmarks/results/search_landscapes.md``).
        """
        if settings.strategy is not None:
            return Grouping(staged=settings.strategy == "staged")
        return Grouping(staged=settings.tuner_type in ("gridsearch", "random"))

    def of(self, layout: Layout) -> int:
        """The group of a layout."""
        return layout.zero_stage if self.staged else _EVERYTHING

    def of_rows(self, table: CandidateTable) -> Ints:
        """The group of each row."""
        return table["zero_stage"] if self.staged else np.full(len(table), _EVERYTHING, np.int64)

    def start(self, group: int) -> StageProgress:
        """A group of which nothing is known. All stages together deserve a few trials more."""
        if self.staged:
            return StageProgress(name=space_name(group))
        return StageProgress(name="global", fewest=FEWEST_TRIALS)
