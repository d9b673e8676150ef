"""The outcome of a search's runs, and which of them have time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("hydra")

from autoconf_launch.autotuner.measurement import FINAL_SUFFIX
from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome, Record, Trial
from autoconf_launch.core import Candidate, Failure, FailureKind, Layout
from autoconf_launch.nemo.candidate_grids import NemoCandidate
from autoconf_launch.nemo.report import SearchOutcome, extrapolation, top_text
from autoconf_launch.nemo.search import HpRuns, Prepared, SearchCandidate, outcome_of
from autoconf_launch.nemo.search.hp_search import too_large
from autoconf_launch.nemo.search.outcome import (
    counts,
    in_time_first,
    is_too_slow,
    least_run_s,
    why_too_slow,
)
from autoconf_launch.nemo.search.training_search import result_document

from .asked import SMALL, ask_for

TIMED_OUT = Failure(kind=FailureKind.TIMED_OUT, detail="did not end within 90 s (--trial-timeout)")


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return ask_for(*SMALL)


def record(one: SearchCandidate, outcome: Outcome, suffix: str = "") -> Record:
    trial = Trial(
        number=1, name=f"{one.name}{suffix}", candidate=Candidate(layout=one.layout), space="z1"
    )
    return Record(trial=trial, outcome=outcome, wall_s=1.0)


def measure(*step_s: float) -> Measurement:
    return Measurement(step_s=step_s, samples_per_step=8, world_size=2)


def outcome(
    prepared: Prepared,
    *records: Record,
    finals: tuple[Record, ...] = (),
    not_started: tuple[tuple[SearchCandidate, Failure], ...] = (),
) -> SearchOutcome:
    done = HpRuns(
        points=prepared.found.candidates,
        records=records,
        finals=finals,
        not_started=not_started,
    )
    return outcome_of(prepared.question, prepared.found, done, prepared.notes)


def test_a_measured_run_has_the_steps_of_its_last_attempt_and_of_later_rounds(
    prepared: Prepared,
) -> None:
    one = prepared.found.candidates[0]
    full = FailedTrial(failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="full"))
    records = (record(one, full), record(one, measure(1.0, 3.0)))
    run = outcome(prepared, *records).runs[0]
    assert (run.failure, run.step_s, run.steps, run.global_batch) == (None, 2.0, 2, 8)
    assert run.step_spread_s == pytest.approx(2**0.5)
    again = record(one, measure(2.0, 2.0), FINAL_SUFFIX)
    run = outcome(prepared, *records, finals=(again,)).runs[0]
    assert (run.step_s, run.steps) == (2.0, 4)


def test_a_run_that_was_not_measured_says_why(prepared: Prepared) -> None:
    first, second, *_ = prepared.found.candidates
    whole = next(one for one in prepared.found.candidates if one.layout.accumulation == 1)
    slow = replace(whole, step_s=7200.0)
    full = Failure(kind=FailureKind.OUT_OF_MEMORY, detail="full")
    by = record(first, FailedTrial(failure=full))
    late = record(first, FailedTrial(failure=TIMED_OUT))
    for found, place, says in (
        (outcome(prepared, late), 0, "within 35 minutes (max_minutes_per_run)"),
        (
            outcome(prepared, by, not_started=((second, too_large(by)),)),
            1,
            f"not started: needs more memory than {first.name}",
        ),
        (
            outcome(prepared, not_started=((slow, why_too_slow(slow)),)),
            0,
            "a few micro-batches are predicted to take 2 hours",
        ),
    ):
        failure = found.runs[place].failure
        assert failure is not None
        assert says in failure.detail


@pytest.mark.parametrize(
    ("gpu", "peak", "step_s", "is_possible"),
    [
        ("NVIDIA A100-SXM4-80GB", "312", 1.0, True),
        ("NVIDIA A100-SXM4-80GB", "312", 1e-9, False),
        ("cpu (2 cores)", "", 1e-9, True),
        (None, "989", 1e-9, False),
    ],
)
def test_a_speed_above_the_peak_of_the_gpu_that_ran_is_not_a_measurement(
    prepared: Prepared, gpu: str | None, peak: str, step_s: float, is_possible: bool
) -> None:
    one = prepared.found.candidates[0]
    records = (record(one, measure(step_s, step_s)),)
    done = HpRuns(points=(one,), records=records, device=gpu)
    found = outcome_of(prepared.question, prepared.found, done, ())
    assert (found.runs[0].failure is None) is is_possible
    said = "" if found.runs[0].failure is None else found.runs[0].failure.detail
    assert is_possible or f"above the peak of {peak}: " in said
    assert ("Config #1" in top_text(found, 1)) is is_possible


def test_an_extrapolated_run_says_from_how_much(prepared: Prepared) -> None:
    one = next(one for one in prepared.found.candidates if one.layout.accumulation == 4)
    made = replace(measure(8.0, 10.0), extrapolated_from=3)
    found = outcome(prepared, record(one, made))
    assert (found.runs[0].step_s, extrapolation(found.runs[0])) == (9.0, "3 of 4 micro-batches")
    (text,) = [line for line in top_text(found, 1).splitlines() if "Config #1" in line]
    assert "extrapolated from 3 of 4 micro-batches" in text
    first = json.loads(json.dumps(result_document(found)))["runs"][0]
    assert (first["steps"], first["extrapolated_from_micro_batches"]) == (0, 3)


def test_every_rejection_is_a_run_with_its_reason(prepared: Prepared) -> None:
    found = outcome(prepared)
    assert len(found.runs) == len(prepared.found.rejected)
    assert all(run.failure and "micro-batch for each" in run.failure.detail for run in found.runs)


TRIAL = Trial(number=0, name="a", candidate=Candidate(layout=Layout()), space="z0")


def as_record(result: Outcome, wall_s: float = 60.0) -> Record:
    return Record(trial=TRIAL, outcome=result, wall_s=wall_s)


def failure(kind: FailureKind) -> FailedTrial:
    return FailedTrial(failure=Failure(kind=kind, detail="it did"))


def test_what_had_too_little_time_is_run_again_with_more_and_nothing_else() -> None:
    made = Measurement(step_s=(1.0,), samples_per_step=1, world_size=1)
    results: tuple[Outcome, ...] = (made, *map(failure, FailureKind))
    for result in results:
        is_late = result == failure(FailureKind.TIMED_OUT)
        assert counts(as_record(result), minutes=1.5) != is_late
        assert counts(as_record(result), minutes=0.5) or not is_late


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
