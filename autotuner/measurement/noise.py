"""Noise of measurements, and tests of a difference. Not: rounds (playoff.rule).

A launch's mean step time differs from its configuration's for two reasons: its steps vary, and
steps that follow each other vary together; and launches differ as a whole, the more so the longer
the time between them. Both are standard deviations of the logarithm, so that 0.04 is 4 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from ..space import Floats, Measurement, Objective, Record

_POLYNOMIAL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_SHORT = 0.3275911
CORRELATION = 0.7
"""Correlation of neighbouring steps on a shared machine (DESIGN, rule 11); less on a quiet one."""
FINAL_SUFFIX = "_final"
"""Suffix of a trial's name when it is measured again in the playoff."""
AGAIN_SUFFIX = "_again"
"""Suffix of a trial's name when it is measured again during the search."""
_WIDEST = 100.0
_MOST_EXPONENT = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUp:
    """Improvement in the metric's direction, as a factor with its 95 % interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRatio:
    """Ratio of the costs of a slower and a faster configuration, as a logarithm.

    Attributes:
        mean: mean over rounds, or the ratio of single trials.
        width: half-width of its 95 % interval; infinite if nothing is known.
        error: standard error of the mean.
        rounds: number of rounds that both were in; 0 for single trials.
    """

    mean: float = 0.0
    width: float = math.inf
    error: float = math.inf
    rounds: int = 0

    @property
    def differs(self) -> bool:
        """True if the interval excludes zero."""
        return abs(self.mean) > self.width

    @property
    def expected_gain(self) -> float:
        """Expected saving by taking the first in place of the second, a share; 0 or more."""
        if math.isinf(self.error):
            return math.inf
        return float(expected_excess(np.array([-self.mean]), np.array([self.error]))[0])

    @property
    def speed_up(self) -> SpeedUp:
        """The speed-up of the second over the first."""
        ratio = math.exp(self.mean)
        if math.isinf(self.width):
            return SpeedUp(ratio=ratio, low=0.0, high=math.inf)
        factor = math.exp(min(self.width, _WIDEST))
        return SpeedUp(ratio=ratio, low=ratio / factor, high=ratio * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Estimated noise of a machine and a script.

    Attributes:
        between: deviation of a launch from its configuration, for launches minutes apart.
        between_freedom: degrees of freedom of ``between``, including the prior's.
        within: deviation of a single step from its launch.
        within_freedom: degrees of freedom of ``within``, including the prior's.
    """

    between: float
    between_freedom: float
    within: float
    within_freedom: float

    def mean_error(self, steps: int) -> float:
        """Standard error of the mean of ``steps`` neighbouring steps; infinite for none."""
        return self.within * math.sqrt(_variance_of_mean(steps)) if steps else math.inf


PRIOR = Noise(between=0.043, between_freedom=8.0, within=0.03, within_freedom=4.0)
"""Noise before anything was repeated. Trials minutes apart differed by 12 % without cause (DESIGN,
rule 11), which is taken as two standard deviations of a difference of two launches."""


class NoiseTally:
    """The prior, corrected by all steps so far and by every candidate measured twice.

    Repeats are found by name. Neighbouring steps have noise in common, perhaps all steps of a
    launch, so that launches are expected to differ by at least as much.
    """

    def __init__(self, prior: Noise = PRIOR) -> None:
        self._prior = prior
        self._squares, self._freedom = 0.0, prior.within_freedom
        self._launches: dict[str, list[tuple[float, float]]] = {}
        self._repeated: dict[str, list[tuple[float, float]]] = {}

    def add(self, record: Record) -> None:
        """Take one more launch."""
        measured = record.measurement
        if measured is None or min(measured.step_s) <= 0.0:
            return
        squares, freedom = _within(measured.step_s)
        self._squares += squares
        self._freedom += freedom
        name = measured_name(record.trial.name)
        launches = self._launches.setdefault(name, [])
        launches.append((math.log(measured.mean_step_s), _variance_of_mean(len(measured.step_s))))
        if len(launches) > 1:
            self._repeated[name] = launches

    @property
    def noise(self) -> Noise:
        """The noise estimated from all launches so far."""
        prior = self._prior
        within = (prior.within_freedom * prior.within**2 + self._squares) / self._freedom
        squares, freedom = _between(self._repeated.values(), within)
        freedom += prior.between_freedom
        expected = max(prior.between**2, CORRELATION * within)
        return Noise(
            between=math.sqrt((prior.between_freedom * expected + squares) / freedom),
            between_freedom=freedom,
            within=math.sqrt(within),
            within_freedom=self._freedom,
        )


def estimate_noise(records: Iterable[Record], prior: Noise = PRIOR) -> Noise:
    """Estimate the noise from a history of launches."""
    tally = NoiseTally(prior)
    for record in records:
        tally.add(record)
    return tally.noise


def measured_name(name: str) -> str:
    """Name of the trial that a launch of this name measures; unchanged without a suffix."""
    return name.removesuffix(FINAL_SUFFIX).removesuffix(AGAIN_SUFFIX)


def relative_error(measurement: Measurement, noise: Noise = PRIOR) -> float:
    """Standard error of the mean step over that mean, from the steps of its launch only.

    The spread of its steps is pooled with the known noise of steps, as a few steps look quieter
    than they are.
    """
    squares, freedom = _within(measurement.step_s)
    known = noise.within_freedom
    own = math.sqrt((squares + known * noise.within**2) / (freedom + known))
    return own * math.sqrt(_variance_of_mean(len(measurement.step_s)))


def compare_trials(
    slower: Measurement, faster: Measurement, objective: Objective, noise: Noise = PRIOR
) -> CostRatio | None:
    """The ratio of the costs of two launches; None if a launch lacks the metric."""
    before, after = objective.rank(slower), objective.rank(faster)
    if not before or not after:
        return None
    ratio = after / before if objective.higher_is_better else before / after
    errors = relative_error(slower, noise), relative_error(faster, noise)
    error = math.hypot(*errors, math.sqrt(2.0) * noise.between)
    width = t_quantile(0.975, noise.between_freedom) * error
    return CostRatio(mean=math.log(ratio), width=width, error=error)


def t_quantile(probability: float, freedom: float) -> float:
    """A quantile above the median of Student's t distribution; infinite without any freedom.

    Slightly too large, never too small: by 1 % from three degrees of freedom on at 0.975.
    """
    return of_student(NormalDist().inv_cdf(probability), freedom)


def of_student(deviations: float, freedom: float) -> float:
    """Bound that a t-distributed number exceeds as rarely as a normal one exceeds ``deviations``.

    Slightly too large, never too small: by 1 % from eight degrees of freedom on, 20 % at three.

    Source:
        Wallace 1959, "Bounds on normal approximations to Student's and the chi-square
        distributions", the approximation solved for t; in place of a normal bound as in Jennison
        and Turnbull 2000, "Group Sequential Methods", 4.4.
    """
    if freedom <= 0.0:
        return math.inf
    exponent = (deviations * (8.0 * freedom + 3.0) / (8.0 * freedom + 1.0)) ** 2 / freedom
    return math.inf if exponent > _MOST_EXPONENT else math.sqrt(freedom * math.expm1(exponent))


@lru_cache(maxsize=4096)
def _within(steps: tuple[float, ...]) -> tuple[float, float]:
    """Squared deviations of the logarithms of steps, and their degrees of freedom.

    Neighbours are alike, so that a few of them spread less than the steps of a long run; the
    degrees of freedom are fewer accordingly.
    """
    if min(steps) <= 0.0:
        return 0.0, 0.0
    logs = [math.log(step_s) for step_s in steps]
    mean = sum(logs) / len(logs)
    squares = sum((value - mean) ** 2 for value in logs)
    return squares, len(logs) * (1.0 - _variance_of_mean(len(logs)))


def _between(
    launches: Iterable[Sequence[tuple[float, float]]], within: float
) -> tuple[float, float]:
    """Squared deviations between launches, less the noise of their steps; degrees of freedom."""
    squares = freedom = 0.0
    for group in launches:
        mean = sum(value for value, _ in group) / len(group)
        seen = sum((value - mean) ** 2 for value, _ in group)
        of_steps = within * sum(part for _, part in group) * (len(group) - 1) / len(group)
        squares += max(0.0, seen - of_steps)
        freedom += len(group) - 1
    return squares, freedom


@lru_cache(maxsize=4096)
def _variance_of_mean(count: int) -> float:
    """Variance of the mean of neighbouring steps over the variance of a single step.

    Source:
        the autocorrelated mean of a first-order autoregression, for example Wilks, "Statistical
        Methods in the Atmospheric Sciences", 5.2.4, with the finite sum in place of its limit,
        and ``CORRELATION``.
    """
    if count < 1:
        return math.inf
    rho = CORRELATION
    lags = rho * (count - (1 - rho**count) / (1 - rho)) / (1 - rho)
    return (count + 2 * lags) / count**2


def chance_below(x: Floats) -> Floats:
    """Chance that a standard normal number is below ``x``, to 1e-7.

    Source: Abramowitz and Stegun 1964, 7.1.26.
    """
    scaled = np.abs(x) / np.sqrt(2.0)
    t = 1.0 / (1.0 + _SHORT * scaled)
    tail = np.polyval((*_POLYNOMIAL, 0.0), t) * np.exp(-(scaled**2))
    return np.asarray(np.where(x > 0, 1.0 - tail / 2.0, tail / 2.0))


def density(x: Floats) -> Floats:
    """Density of the standard normal distribution."""
    return np.asarray(np.exp(-0.5 * np.square(x)) / np.sqrt(2.0 * np.pi))


def expected_excess(mean: Floats, spread: Floats) -> Floats:
    """Expected excess of normal numbers over 0; a negative number counts as 0.

    Args:
        mean: expected value of each number.
        spread: standard deviation of each number, above 0.
    """
    z = mean / spread
    return np.asarray(np.maximum(spread * (z * chance_below(z) + density(z)), 0.0))
