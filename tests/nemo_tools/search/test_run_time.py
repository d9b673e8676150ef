from __future__ import annotations

import pytest

pytest.importorskip("hydra")

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome, Record, Trial
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout
from autoconf_launch.nemo.candidate_grids import NemoCandidate
from autoconf_launch.nemo.search import SearchCandidate
from autoconf_launch.nemo.search.outcome import counts, in_time_first, is_too_slow, least_run_s

TRIAL = Trial(number=0, name="a", candidate=Candidate(layout=Layout()), space="z0")


def record(outcome: Outcome, wall_s: float = 60.0) -> Record:
    return Record(trial=TRIAL, outcome=outcome, wall_s=wall_s)


def failure(kind: FailureKind) -> FailedTrial:
    return FailedTrial(failure=Failure(kind=kind, detail="it did"))


def test_what_had_too_little_time_is_run_again_with_more_and_nothing_else() -> None:
    made = Measurement(step_s=(1.0,), samples_per_step=1, world_size=1)
    for outcome in (made, *map(failure, FailureKind)):
        is_late = outcome == failure(FailureKind.TIMED_OUT)
        assert counts(record(outcome), minutes=1.5) != is_late
        assert counts(record(outcome), minutes=0.5) or not is_late


def candidate(step_s: float, accumulation: int) -> SearchCandidate:
    point = NemoCandidate(layout=Layout(accumulation=accumulation))
    return SearchCandidate(name=f"{accumulation}", point=point, step_s=step_s)


def test_of_a_long_step_two_micro_batches_must_fit() -> None:
    assert least_run_s(candidate(100.0, 4)) == 50.0
    assert least_run_s(candidate(100.0, 1)) == 100.0


def test_what_fits_into_the_minutes_comes_first() -> None:
    whole, half, short = candidate(100.0, 1), candidate(101.0, 2), candidate(102.0, 8)
    assert in_time_first((whole, half, short), minutes=1.0) == (short, whole, half)


def test_only_what_surely_lacks_time_is_not_started() -> None:
    one = candidate(100.0, 1)
    assert [is_too_slow(one, minutes) for minutes in (0.5, 1.0)] == [True, False]
