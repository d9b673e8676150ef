import numpy as np
import pytest

from autoconf_launch.autotuner.search import baseline_trial
from autoconf_launch.autotuner.space import (
    CandidateTable,
    FailedTrial,
    Outcome,
    is_sure,
    surely_needs_more,
)
from autoconf_launch.core import Candidate, Failure, FailureKind, Recompute

from ..conftest import LIMIT_BYTES, candidate, failure_of, out_of_memory, record, steps_of

BASELINE = baseline_trial(candidate())


def needs_more(row: Candidate, than: Candidate) -> bool:
    return bool(surely_needs_more(CandidateTable.from_candidates([row]), than)[0])


FAILED = candidate(stage=1, micro=4, accumulation=2)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (candidate(stage=1, micro=4, accumulation=2), True),
        (candidate(stage=1, micro=8, accumulation=2), True),
        (candidate(stage=1, micro=2, accumulation=4), False),
        (candidate(stage=0, micro=4, accumulation=2), True),
        (candidate(stage=2, micro=8, accumulation=2), False),
        (candidate(stage=1, micro=8, accumulation=1), False),
        (candidate(stage=1, micro=8, accumulation=2, recompute=Recompute.FULL), False),
        (candidate(stage=1, micro=8, accumulation=2, ranks=4), False),
    ],
)
def test_larger_micro_batches_and_lower_stages_need_more(row: Candidate, expected: bool) -> None:
    assert needs_more(row, FAILED) is expected


def test_what_is_gathered_or_accumulated_decides_what_surely_needs_more() -> None:
    assert needs_more(candidate(micro=2, accumulation=4), candidate(micro=2))
    assert not needs_more(candidate(stage=1), candidate(stage=2))
    assert needs_more(candidate(stage=2), candidate(stage=3))
    assert not needs_more(candidate(stage=0, ranks=1), candidate(stage=1, ranks=1))


@pytest.mark.parametrize(("peak_bytes", "expected"), [(119, False), (120, True), (np.nan, False)])
def test_predictions_decide_where_the_rule_is_not_sure(peak_bytes: float, expected: bool) -> None:
    table = CandidateTable.from_candidates([candidate(stage=1)])
    found = surely_needs_more(table, candidate(stage=2), np.array([peak_bytes]), 100)
    assert found.tolist() == [expected]


def seen_free(free_bytes: int, limit_bytes: int = LIMIT_BYTES) -> FailedTrial:
    outcome = out_of_memory()
    assert outcome.memory is not None
    memory = outcome.memory
    return FailedTrial(
        failure=outcome.failure,
        memory=type(memory)(
            free_before_bytes=free_bytes,
            peak_bytes=memory.peak_bytes,
            limit_bytes=limit_bytes,
        ),
    )


@pytest.mark.parametrize(
    ("outcome", "sure"),
    [
        (seen_free(LIMIT_BYTES * 8 // 10), True),
        (seen_free(LIMIT_BYTES * 8 // 10 - 1), False),
        (seen_free(49 * 2**30, limit_bytes=50 * 2**30), True),
        (seen_free(45 * 2**30, limit_bytes=50 * 2**30), False),
        (FailedTrial(failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="")), False),
        (failure_of(FailureKind.OUT_OF_MEMORY), False),
        (steps_of(BASELINE, 1.0), False),
    ],
)
def test_only_memory_that_was_free_before_makes_a_failure_sure(
    outcome: Outcome, sure: bool
) -> None:
    assert is_sure(record(BASELINE, outcome)) is sure
