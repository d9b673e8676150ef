"""How many steps the trials of a study are worth, from what it was told. Not: which trials."""

from __future__ import annotations

from collections.abc import Sequence

from .noise import Noise, estimate_noise
from .objective import Objective
from .stop_rule import StopRule
from .trial import Record, Trial


class Pace:
    """Asks the stop rule with the noise of the history, which is looked at once per record."""

    def __init__(self, objective: Objective, rule: StopRule | None = None) -> None:
        self._objective = objective
        self._rule = rule or StopRule()
        self._at = -1
        self._noise: Noise | None = None

    def end_step(
        self,
        trial: Trial,
        step_s: Sequence[float],
        best: Record | None,
        records: Sequence[Record],
    ) -> int:
        """Where a running trial is to end, after these steps (of its slowest ranks).

        Args:
            trial: what runs.
            step_s: seconds of each step from the first on.
            best: the best trial so far.
            records: everything that came back.
        """
        if self._noise is None or self._at != len(records):
            self._at, self._noise = len(records), estimate_noise(records)
        measured = best.measurement if best else None
        if measured is None:
            return self._rule(step_s, None, self._noise)
        samples = trial.candidate.layout.global_batch
        work = self._objective.cost_s(measured.mean_step_s, measured.samples_per_step)
        as_fast_s = work / self._objective.cost_s(1.0, samples)
        return self._rule(step_s, as_fast_s, self._noise)
