"""Which micro-batches are worth a look under a rule for the global batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoconf_launch.core import divisors

from .settings import AutotuningSettings

_ALL_UP_TO = 16
"""A range of at most this many micro-batches is not thinned."""
_PER_DOUBLING = 3
"""Micro-batches of a longer range, for each time that it doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalBatchRule:
    """What may become of the samples of one optimizer step.

    Attributes:
        pinned: it stays this; weighs more than ``maximum``.
        maximum: consent to any up to this. With neither of them there is no limit.
        flag: the launcher's flag that gives consent, for messages.
    """

    pinned: int | None = None
    maximum: int | None = None
    flag: str = "--allow-global-batch-change"


def micro_batches_to_try(
    today: int,
    data_parallel: Sequence[int],
    rule: GlobalBatchRule,
    settings: AutotuningSettings,
) -> tuple[int, ...]:
    """Micro-batches in ascending order, within the bounds of the settings.

    A pinned global batch admits its divisors, all of them. Otherwise a long range is thinned
    evenly by ratio, and what divides today's batch is kept. ``num_tuning_micro_batch_sizes`` is
    not about this range: it counts the best of them, whose further knobs are tuned (phases).

    Args:
        today: global batch of the baseline.
        data_parallel: degrees that occur in the space.
        rule: what may become of the global batch.
        settings: bounds.
    """
    least = settings.min_train_micro_batch_size_per_gpu
    most = settings.max_train_micro_batch_size_per_gpu
    kept = rule.pinned or today
    exact = {b for ranks in data_parallel if kept % ranks == 0 for b in divisors(kept // ranks)}
    if rule.pinned is not None:
        return tuple(b for b in sorted(exact) if least <= b <= most)
    if rule.maximum is not None:
        most = min(most, rule.maximum // min(data_parallel))
    wanted = exact | set(_thin_out(least, most))
    return tuple(b for b in sorted(wanted) if least <= b <= most)


def _thin_out(least: int, most: int) -> tuple[int, ...]:
    """The whole range, or where it is long a geometric series down from the largest."""
    if most - least < _ALL_UP_TO:
        return tuple(range(least, most + 1))
    steps = _PER_DOUBLING * most.bit_length()
    return tuple(round(most * 2 ** (-k / _PER_DOUBLING)) for k in range(steps))
