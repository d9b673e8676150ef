"""The step at which a running trial should end, from its steps so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ..space import Objective, Record, Trial
from .noise import Noise, t_quantile
from .presets import NORMAL

FEWEST_TIMED = 2
"""Fewest timed steps of a trial that is not rejected."""

_WARM_UP = math.log(1.25)
"""Slowdown of a warm-up step against the steps that count, as measured; a logarithm."""
_Z = 1.96
_SMALL = 0.61
"""Error of a trial's steps, over the noise between launches, that more steps hardly improve: both
together are then 17 % above the latter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Ends a trial that cannot be the best; other trials go on while more steps tell something.

    Attributes:
        start_step: first step that counts, from 1.
        end_step: last step if no allowed number of steps is precise enough.
        most_steps: largest number of steps of a trial.
        precision: sufficient half-width of the 95 % interval of a trial.
        alpha: probability of rejecting a trial that is as good as the incumbent.
    """

    start_step: int = 3
    end_step: int = 5
    most_steps: int = NORMAL.most_steps
    precision: float = NORMAL.trial_precision
    alpha: float = 0.05

    def __call__(self, steps_s: Sequence[float], incumbent_s: float | None, noise: Noise) -> int:
        """The step to end at.

        Args:
            steps_s: seconds of each step from the first on, its slowest rank.
            incumbent_s: duration of as much work at the speed of the best trial so far.
            noise: noise of this machine, as known so far.
        """
        if incumbent_s is not None and self.rejects(steps_s, incumbent_s, noise):
            return len(steps_s)
        most = self.most_steps - self.start_step + 1
        enough = _steps_needed(noise, self.precision, most=most)
        end_step = self.end_step if enough is None else self.start_step - 1 + enough
        return max(end_step, len(steps_s))

    def rejects(self, steps_s: Sequence[float], incumbent_s: float, noise: Noise) -> bool:
        """True if a trial is slower than the incumbent beyond the noise of both.

        If no step counts yet, the last warm-up step does, less the slowdown of warm-up.
        """
        timed = [step_s for step_s in steps_s[self.start_step - 1 :] if step_s > 0.0]
        if timed:
            excess = math.log(fmean(timed) / incumbent_s)
        elif len(steps_s) > 1 and steps_s[-1] > 0.0:
            excess = math.log(steps_s[-1] / incumbent_s) - _WARM_UP
        else:
            return False
        return excess > rejection_margin(max(1, len(timed)), noise, self.alpha)


def rejection_margin(steps: int, noise: Noise, alpha: float) -> float:
    """Largest slowdown of ``steps`` steps that noise explains, as a logarithm.

    The noise between two launches counts once; the noise of steps counts at each check.

    Source:
        for the steps Robbins' normal mixture with the variance of a first-order autoregression.
    """
    launches = t_quantile(1 - alpha / 2, noise.between_freedom) * math.sqrt(2) * noise.between
    own = noise.within**2
    total = (steps * noise.mean_error(steps)) ** 2 + own
    looked_at = math.sqrt(total * (math.log(total / own) + 2 * math.log(1 / alpha))) / steps
    return launches + looked_at


def _steps_needed(noise: Noise, precision: float, *, most: int) -> int | None:
    """Number of steps until the mean is precise, or its error small against launch noise.

    None if ``most`` steps are not enough, so that more steps tell little.
    """
    floor = _SMALL * noise.between
    for count in range(FEWEST_TIMED, most + 1):
        error = noise.mean_error(count)
        if _Z * error <= precision or error <= floor:
            return count
    return None


def as_fast_s(trial: Trial, best: Record | None, objective: Objective) -> float | None:
    """Step of a trial at the speed of the best one; None before anything was measured."""
    measured = best.measurement if best else None
    if measured is None:
        return None
    work = objective.cost_s(measured.mean_step_s, measured.samples_per_step)
    return work / objective.cost_s(1.0, trial.candidate.layout.global_batch)
