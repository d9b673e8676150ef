"""How much slower the machine is now than when a search began, by repeats of the baseline.

Not: what follows for trials (drift), which are compared as they were measured: when between two
launches the machine changed, a short search does not tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .noise import Noise, relative_error, t_quantile
from .trial import Measurement, Record

_SURE = 0.975


def level_now(launches: Sequence[Record], noise: Noise) -> float:
    """Logarithm of what the last launch of a configuration takes beside the first one.

    0 within the noise of launches. ``launches`` are of one configuration, in order.
    """
    done = [one for r in launches if (one := r.measurement) and one.mean_step_s > 0.0]
    if len(done) < 2:
        return 0.0
    first, last = done[0], done[-1]
    difference = math.log(last.mean_step_s / first.mean_step_s)
    return beyond(difference, 1, (first, last), noise)


def beyond(difference: float, count: int, last: Sequence[Measurement], noise: Noise) -> float:
    """What is left of a difference of a launch and the mean of ``count``; 0 within the noise.

    Source:
        the positive part of James and Stein 1961, "Estimation with Quadratic Loss", with the
        noise taken at its 95 % bound: of a large difference almost all is left.
    """
    errors = [relative_error(measurement, noise) for measurement in last]
    spread = math.hypot(*errors, math.sqrt(1.0 + 1.0 / count) * noise.between)
    limit = t_quantile(_SURE, noise.between_freedom) * spread
    return difference * (1.0 - (limit / difference) ** 2) if abs(difference) > limit else 0.0
