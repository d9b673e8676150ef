"""At which step a running trial should end, from its steps so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ..space import Objective, Record, Trial, Turn
from .noise import Noise, t_quantile
from .presets import NORMAL
from .sequential_test import LAUNCH

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


FEWEST_IN_TURN = 4
MOST_IN_TURN = 10
"""Turns of each launch."""

TURN_S = 0.05
"""Shorter turns are for the most part what a turn costs: a launch wakes up with cold caches."""

_LENGTHS = (1, 3, 5, 7, 11)
"""Steps of a turn: primes, so that what a training does every few steps meets each place of it."""

FEWEST_APART = 6
MOST_APART = 40
"""Timed steps of a launch that follows another one, where launches are what takes the time."""

_ROUNDS_TO_HAVE = 3
_UNFELT = 0.2
"""Share of a launch's cost that may be added in steps, however few rounds there is time for."""


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


def turn_time_s(records: Sequence[Record]) -> float:
    """Seconds of a turn of each of these: a step of the slowest one, ``TURN_S`` at least."""
    return max([TURN_S, *(r.measurement.mean_step_s for r in records if r.measurement)])


def steps_of_turn(record: Record, turn_s: float) -> int:
    """Steps that one of these has in a turn of so many seconds: as many as find room.

    Enough for ``TURN_S`` in any case.
    """
    step_s = record.measurement.mean_step_s if record.measurement else 0.0
    room = [length for length in _LENGTHS if length * step_s <= turn_s]
    enough = (length for length in _LENGTHS if length * step_s >= TURN_S)
    return max(*room[-1:], next(enough, _LENGTHS[-1]), 1)


def without_wake_ups(step_s: Sequence[float], turn: Turn | None) -> tuple[float, ...]:
    """Steps without the first of each turn of several, at which the launch wakes up."""
    length = turn.length if turn else 1
    left = tuple(step for place, step in enumerate(step_s) if place % length)
    return left or tuple(step_s)


def turns_of_round(records: Sequence[Record], noise: Noise, time_s: float) -> int:
    """Timed turns of each launch of a round in which these live side by side.

    More of them where steps are noisy beside launches, and where a launch costs many steps; fewer
    where a few rounds would not fit in ``time_s`` seconds and it is the steps that make them long.

    Source:
        Cochran 1977, "Sampling Techniques", chapter 10: the cheapest size of a second stage.
    """
    each_s = turn_time_s(records)
    made = [(steps_of_turn(r, each_s), r.measurement) for r in records if r.measurement]
    turn_s = sum(length * measured.mean_step_s for length, measured in made)
    if not turn_s:
        return FEWEST_IN_TURN
    cost = _cost(records, turn_s)
    error = noise.mean_error(min(length for length, _ in made))
    best = round(math.sqrt(cost) * error / LAUNCH)
    room = min(_room(cost, turn_s, time_s), MOST_IN_TURN)
    return max(FEWEST_IN_TURN, min(best, room))


def time_apart_s(records: Sequence[Record], noise: Noise, time_s: float) -> float:
    """Seconds of timed steps of each launch where those of a round follow each other.

    They differ by more than those that live side by side, which no number of steps fixes; but
    beside launches of many seconds a few steps more cost nothing.
    """
    each_s = [r.measurement.mean_step_s for r in records if r.measurement]
    if not sum(each_s):
        return 0.0
    cost = _cost(records, sum(each_s))
    best = max(FEWEST_APART, round(math.sqrt(cost) * noise.within / noise.between))
    room = min(_room(cost, sum(each_s), time_s), MOST_APART)
    return max(FEWEST_TIMED, min(best, room)) * fmean(each_s)


def steps_apart(record: Record, time_s: float) -> int:
    """Timed steps that one of these makes in so many seconds."""
    step_s = record.measurement.mean_step_s if record.measurement else 0.0
    most = round(time_s / step_s) if step_s else FEWEST_TIMED
    return max(FEWEST_TIMED, min(most, MOST_APART))


def _cost(records: Sequence[Record], turn_s: float) -> float:
    """What a round costs beside its timed steps, in turns of all launches."""
    made = [(record.wall_s, record.measurement) for record in records if record.measurement]
    warm_up = max((m.first_step or 1) - 1 for _, m in made)
    warm_up_s = warm_up * sum(m.mean_step_s for _, m in made)
    launch_s = sum(
        max(0.0, wall_s - m.mean_step_s * (warm_up + len(m.step_s))) for wall_s, m in made
    )
    return (warm_up_s + launch_s) / turn_s


def _room(cost: float, turn_s: float, time_s: float) -> int:
    """Turns for which there is time, or which nobody feels beside what launches cost."""
    in_time = time_s / (_ROUNDS_TO_HAVE * turn_s) - cost
    most = max(in_time, _UNFELT * cost)
    return math.floor(min(most, MOST_APART))
