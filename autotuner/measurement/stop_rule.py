"""At which step a running trial should end, from its steps so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ..space import Objective, Record, Trial
from .noise import Noise, t_quantile
from .presets import NORMAL

FEWEST_TIMED = 2
"""Steps that a trial which is not rejected is timed for at least."""

_WARM_UP = math.log(1.25)
"""By how much a warm-up step was seen to be slower than those that count."""
_Z = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """Ends what cannot be the best, and goes on with what may be while that tells something.

    Attributes:
        start_step: first step that counts, from 1.
        end_step: last one where the rule has nothing to say.
        most_steps: no trial makes more.
        precision: half the width of a trial's own 95 % interval that is narrow enough.
        alpha: probability to reject a trial that is as good as the incumbent.
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
            incumbent_s: a step of as much work at the speed of the best trial so far.
            noise: of this machine, as far as it is known.
        """
        if incumbent_s is not None and self.rejects(steps_s, incumbent_s, noise):
            return len(steps_s)
        most = self.most_steps - self.start_step + 1
        enough = _steps_needed(noise, self.precision, most=most)
        end_step = self.end_step if enough is None else self.start_step - 1 + enough
        return max(end_step, len(steps_s))

    def rejects(self, steps_s: Sequence[float], incumbent_s: float, noise: Noise) -> bool:
        """Whether a trial is slower than the incumbent beyond the noise of both.

        A warm-up step counts, too, less what such a step may be slower.
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
    """How much slower, as a logarithm, so many steps may look without being so.

    Two launches differ once, however often one looks; the steps are looked at each time.

    Source:
        for the steps Robbins' normal mixture with the variance of a first-order autoregression;
        see :mod:`.sequential`.
    """
    launches = t_quantile(1 - alpha / 2, noise.between_freedom) * math.sqrt(2) * noise.between
    own = noise.within**2
    total = (steps * noise.mean_error(steps)) ** 2 + own
    looked_at = math.sqrt(total * (math.log(total / own) + 2 * math.log(1 / alpha))) / steps
    return launches + looked_at


def _steps_needed(noise: Noise, precision: float, *, most: int) -> int | None:
    """Until the mean is precise enough, or its error small beside what launches differ by.

    None where no number of steps up to ``most`` gets there, so that more tell little.
    """
    floor = noise.between / 2
    for count in range(FEWEST_TIMED, most + 1):
        error = noise.mean_error(count)
        if _Z * error <= precision or error <= floor:
            return count
    return None


class Pace:
    """Asks the stop rule for a trial beside the best one."""

    def __init__(self, objective: Objective, rule: StopRule | None = None) -> None:
        self._objective = objective
        self._rule = rule or StopRule()

    def end_step(
        self,
        trial: Trial,
        step_s: Sequence[float],
        best: Record | None,
        noise: Noise,
    ) -> int:
        """Where a running trial is to end, after these steps (of its slowest ranks).

        Args:
            trial: what runs.
            step_s: seconds of each step from the first on.
            best: the best trial so far.
            noise: of everything that came back.
        """
        measured = best.measurement if best else None
        if measured is None:
            return self._rule(step_s, None, noise)
        samples = trial.candidate.layout.global_batch
        work = self._objective.cost_s(measured.mean_step_s, measured.samples_per_step)
        as_fast_s = work / self._objective.cost_s(1.0, samples)
        return self._rule(step_s, as_fast_s, noise)
