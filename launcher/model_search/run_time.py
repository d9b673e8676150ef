"""What ``max_minutes_per_run`` is enough for. Not: the runs (local_runs)."""

from __future__ import annotations

from collections.abc import Sequence

from autoconf_launch.autotuner.trial import Record
from autoconf_launch.core import FailureKind

from ..views.duration import duration_text
from .candidates import SearchCandidate

_STEPS_SHARE = 0.9
"""Share of a run's minutes for its steps; the rest is for its start."""
_GRACE_S = 30.0
_SURELY = 2.0
"""A prediction is taken to be off by this factor at most."""
_FEWEST_MICRO_BATCHES = 2
"""Micro-batches that a run must make of its first step: one, and one with the gradient sync."""
_SAME_TIME = 0.95
"""Share of a run's minutes above which an earlier run had as many."""


def steps_limit_s(minutes: float) -> float:
    """Seconds for the steps of a run."""
    return _STEPS_SHARE * 60.0 * minutes


def run_limit_s(minutes: float) -> float:
    """Seconds after which a run is ended."""
    return 60.0 * minutes + _GRACE_S


def least_run_s(one: SearchCandidate) -> float:
    """Predicted seconds of the least that a run must make: a step, or the start of a long one."""
    share = min(1.0, _FEWEST_MICRO_BATCHES / one.layout.accumulation)
    return share * (one.step_s or 0.0)


def is_too_slow(one: SearchCandidate, minutes: float) -> bool:
    """Whether a run would surely not even make that."""
    return least_run_s(one) > _SURELY * 60.0 * minutes


def in_time_first(found: Sequence[SearchCandidate], minutes: float) -> tuple[SearchCandidate, ...]:
    """Those that make that in time, were they half as fast as predicted, before the others."""
    limit_s = steps_limit_s(minutes)
    return tuple(sorted(found, key=lambda one: _SURELY * least_run_s(one) > limit_s))


def all_too_slow(found: Sequence[SearchCandidate], minutes: float) -> str:
    """A sentence for where every candidate is."""
    fastest_s = min(least_run_s(one) for one in found)
    return (
        f"No candidate can make {_FEWEST_MICRO_BATCHES} micro-batches here within "
        f"max_minutes_per_run = {minutes:g}: the fastest is predicted to take "
        f"{duration_text(fastest_s)} for them; give a smaller model or seq_length, or more "
        "minutes."
    )


def counts(record: Record, minutes: float) -> bool:
    """Whether an earlier outcome is one of today: not where its run had less time."""
    failure = record.failure
    is_late = failure is not None and failure.kind is FailureKind.TIMED_OUT
    return not is_late or record.wall_s >= _SAME_TIME * run_limit_s(minutes)


def are_extrapolated(records: Sequence[Record]) -> bool:
    """Whether there was no time for a whole step; then there is none to measure the best again."""
    made = [record.measurement for record in records if record.measurement]
    return any(one.extrapolated_from is not None for one in made)
