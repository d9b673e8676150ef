"""The two phases of a stage: its micro-batches, then further knobs of the best of them.

Not: which stage is next (Study), nor which row of a phase (a strategy).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .grouping import Grouping
from .learned import Learned
from .pool import Pool
from .settings import AutotuningSettings
from .stage import StageProgress
from .table import Ints
from .trial import Trial


class Phases:
    """Tells the phase of each stage from what is open and what came back."""

    def __init__(
        self, pool: Pool, settings: AutotuningSettings, learned: Learned, groups: Grouping
    ) -> None:
        self._pool = pool
        self._groups = groups
        self._settings = settings
        self._learned = learned
        self._given_up: set[tuple[int, bool]] = set()

    def give_up(self, stage: int, *, further: bool) -> None:
        """The strategy finds nothing worth a trial in this phase."""
        self._given_up.add((stage, further))

    def is_further(self, stage: int, progress: StageProgress, *, small_too: bool) -> bool:
        """Whether a stage is done with its micro-batches."""
        if progress.further or (stage, False) in self._given_up:
            return True
        patience = progress.remaining(self._settings, 0, further=False)
        return not patience or not len(self._pool.usual_rows(stage, small_too=small_too))

    def due_rows(
        self,
        stage: int,
        progress: StageProgress,
        pending: Sequence[Trial],
        *,
        small_too: bool,
    ) -> Ints:
        """Numbers of the rows to choose from now; none while the choice waits for ``pending``."""
        further = self.is_further(stage, progress, small_too=small_too)
        if not further:
            return self._pool.usual_rows(stage, small_too=small_too)
        if not self._pool.has_further or (stage, True) in self._given_up:
            return self._pool.further_rows(stage, ())
        waits = any(
            self._groups.of(trial.candidate.layout) == stage
            and not self._pool.is_further(trial.candidate)
            for trial in pending
        )
        most = self._settings.num_tuning_micro_batch_sizes
        layouts = () if waits else self._learned.best_layouts(stage, most)
        return self._pool.further_rows(stage, layouts)

    def are_cut(self, *, small_too: bool) -> bool:
        """Whether the number of trials alone keeps one of the stages from going on."""
        return any(
            self._is_cut(stage, progress, small_too=small_too)
            for stage, progress in self._learned.stages.items()
        )

    def _is_cut(self, stage: int, progress: StageProgress, *, small_too: bool) -> bool:
        if progress.tried < self._settings.tuner_num_trials:
            return False
        anew = replace(progress, tried=0)
        further = self.is_further(stage, anew, small_too=small_too)
        if not anew.remaining(self._settings, 0, further=further):
            return False
        return len(self.due_rows(stage, anew, (), small_too=small_too)) > 0
