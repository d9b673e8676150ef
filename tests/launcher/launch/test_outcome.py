from __future__ import annotations

import json
import math
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import (
    Aside,
    Asides,
    Candidate,
    Failure,
    FailureKind,
    MemoryUse,
    Mode,
    RankResult,
    Recompute,
    WentOn,
    encode,
    sign_path,
    unfinished_sign,
)
from autoconf_launch.launcher.launch import Cancelled, RanksEnd, adopt, read_outcome
from autoconf_launch.launcher.launch.outcome import mismatch
from autoconf_launch.launcher.plan import LaunchPlan

from .outcomes import (
    APPLIED,
    EXPECTED,
    START_S,
    ends_of,
    failure_of,
    measure,
    outcome_of,
    plan_of,
    report,
    result_of,
    steps_of,
)

CRASHED, OUT_OF_MEMORY = FailureKind.CRASHED, FailureKind.OUT_OF_MEMORY
LITTLE = MemoryUse(free_before_bytes=9, peak_bytes=1, limit_bytes=9)
MUCH = replace(LITTLE, peak_bytes=8)
PAUSED = Asides(before_steps=(4,))
Changes = dict[str, Any]


def of_both(**more: Any) -> tuple[Changes, Changes]:
    return more, more


MEASURED = {
    "samples_are_summed": (({}, {}), {"samples_per_step": 8}),
    "slowest_rank": (({}, {"steps": steps_of(9, 9, 5, 1, 1)}), {"step_s": (5, 2, 3)}),
    "told_to_go_on": (
        of_both(steps=steps_of(9, 9, 1, 2, 3, 4), end_step=6),
        {"first_step": 3, "step_s": (1, 2, 3, 4)},
    ),
    "the_last_step_if_it_ended_before_any_counts": (
        of_both(steps=steps_of(9, 8), end_step=2),
        {"first_step": 2, "step_s": (8,)},
    ),
    "a_script_ended_early": (of_both(steps=steps_of(9, 9, 1, 2)), {"step_s": (1, 2)}),
    "losses_are_means": (
        ({}, {"steps": steps_of(1, 1, 1, 1, 1, loss=2.0)}),
        {"losses": (1.5,) * 3, "all_losses": (1.5,) * 5},
    ),
    "highest_peak": (({"memory": LITTLE}, {"memory": MUCH}), {"memory": MUCH}),
    "flops_are_summed": (
        ({"flops_per_step": 2.0}, {"flops_per_step": 3.0}),
        {"flops_per_step": 5.0},
    ),
    "flops_of_one_unknown": (({"flops_per_step": 2.0}, {}), {"flops_per_step": None}),
    "after_a_pause_the_rank_that_was_in_it_counts": (
        ({"asides": PAUSED}, {"steps": steps_of(9, 9, 1, 50, 4)}),
        {"step_s": (1, 2, 4)},
    ),
    "after_a_pause_no_less_than_the_others": (
        of_both(steps=steps_of(9, 9, 6, 0.1, 5), asides=PAUSED),
        {"step_s": (6, 5, 5)},
    ),
}


@pytest.mark.parametrize(("results", "measured"), MEASURED.values(), ids=MEASURED)
def test_a_launch_is_measured_over_the_steps_that_count(
    tmp_path: Path, results: tuple[Changes, Changes], measured: Changes
) -> None:
    (tmp_path / "stderr.log").write_text("error: out of memory\n")  # means nothing
    outcome = measure(outcome_of(tmp_path, *(result_of(n, **r) for n, r in enumerate(results))))
    assert {name: getattr(outcome, name) for name in measured} == measured


def test_a_crash_after_the_full_report_takes_nothing_away(tmp_path: Path) -> None:
    measure(outcome_of(tmp_path, result_of(0), result_of(1), end=ends_of(0, -11)))


def crash(rank: int, after_s: float = 10, **more: Any) -> RankResult:
    return result_of(rank, CRASHED, after_s=after_s, **more)


LOST = Failure(
    kind=CRASHED, detail="Connection closed", lost_peer=True, log_tail=("Traceback", "x")
)
TOO_SHORT = (
    "the script ended after 2 optimizer steps, before start_profile_step 3; it must make at least "
    "5"
)


CAUSES = {
    "an_exit_code_before_the_last_step": (
        [result_of(rank, steps=steps_of(9, 9, 1, 2)) for rank in (0, 1)],
        ends_of(0, 7),
        "rank 1 ended with exit code 7 and did not report why",
    ),
    "the_earliest": ([crash(0, 2), crash(1, 1)], ends_of(1, 1), "rank 1: crashed it is"),
    "the_death_that_broke_a_connection": (
        [crash(0, 9.9)],
        ends_of(1, -signal.SIGKILL, after_s=(11.0, 10.0)),
        "rank 1 was killed by SIGKILL; the kernel may have run out of memory (see dmesg)",
    ),
    "not_an_abort_that_a_peers_crash_caused": (
        [crash(0, 9.9)],
        ends_of(1, -signal.SIGABRT, after_s=(11.0, 10.0)),
        "rank 0: crashed it is",
    ),
    "not_a_lost_peer_if_the_peer_has_a_cause": (
        [result_of(0, failure=LOST), crash(1)],
        ends_of(1, 1),
        "rank 1: crashed it is",
    ),
    "not_a_lost_peer_if_the_peer_exited_with_a_code": (
        [result_of(0, failure=LOST)],
        ends_of(1, 3, after_s=(10.0, 20.0)),
        "rank 1 ended with exit code 3 and did not report why",
    ),
    "a_lost_peer_if_the_peer_was_ended": (
        [result_of(0, failure=LOST)],
        replace(ends_of(1, 3, after_s=(10.0, 20.0)), terminated_unix_s=START_S),
        "rank 0: Connection closed",
    ),
    "a_rank_that_left_before_is_named_too": (
        [crash(0), result_of(1, steps=steps_of(9, 9), ended_early=True)],
        ends_of(1, 0, after_s=(11.0, 60.0)),
        "rank 0: crashed it is; rank 1 had ended without an error before it",
    ),
    "a_rank_that_left_after_is_not": (
        [crash(0), result_of(1, ended_early=True, after_s=20)],
        ends_of(1, 0, after_s=(10.0, 20.0)),
        "rank 0: crashed it is",
    ),
    "not_a_rank_that_we_ended": (
        [],
        replace(ends_of(3, -15, after_s=(10, 12)), terminated_unix_s=START_S + 11),
        "rank 0 ended with exit code 3 and did not report why",
    ),
}


@pytest.mark.parametrize(("results", "end", "detail"), CAUSES.values(), ids=CAUSES)
def test_the_cause_of_a_crash_is_found(
    tmp_path: Path, results: list[RankResult], end: RanksEnd, detail: str
) -> None:
    failure = failure_of(outcome_of(tmp_path, *results, end=end))
    assert (failure.kind, failure.detail) == (CRASHED, detail)
    assert failure.log_tail == ()  # a broken connection is not shown as the reason


@pytest.mark.parametrize(
    ("number", "name"), [(11, "SIGSEGV"), (6, "SIGABRT"), (15, "SIGTERM"), (50, "signal 50")]
)
def test_the_signal_of_a_death_is_named(tmp_path: Path, number: int, name: str) -> None:
    failure = failure_of(outcome_of(tmp_path, end=ends_of(-number), ranks=1))
    assert failure.detail == f"rank 0 was killed by {name}"


def test_out_of_memory_wins_over_an_earlier_crash_of_the_peer(tmp_path: Path) -> None:
    late = result_of(1, OUT_OF_MEMORY, after_s=99, memory=MUCH)
    outcome = outcome_of(tmp_path, crash(0), late, end=ends_of(1, 1))
    assert isinstance(outcome, FailedTrial)
    assert (outcome.failure.kind, outcome.memory) == (OUT_OF_MEMORY, MUCH)


@pytest.mark.parametrize(
    ("results", "kind", "detail"),
    [
        pytest.param(
            [result_of(rank, attempt="before") for rank in (0, 1)],
            FailureKind.NO_STEPS,
            "rank 0 ended without reporting an optimizer step",
            id="results_of_an_earlier_attempt",
        ),
        pytest.param(
            [result_of(rank, steps=steps_of(9, 9)) for rank in (0, 1)],
            FailureKind.NO_STEPS,
            TOO_SHORT,
            id="too_few_steps",
        ),
        pytest.param(
            [result_of(rank, world_size=4) for rank in (0, 1)],
            FailureKind.NOT_APPLIED,
            "rank 0: the script ran with 4 ranks instead of 2",
            id="another_number_of_ranks",
        ),
        pytest.param(
            [result_of(0), result_of(1, steps=steps_of(1, 1, 1, 1, 1, loss=math.nan))],
            FailureKind.NAN,
            "rank 1: the loss is not a number at step 1",
            id="a_loss_that_is_no_number",
        ),
        *(
            pytest.param(
                [result_of(0, steps=steps_of(9, 9, wall_s, 2, 3)), result_of(1)],
                FailureKind.NO_STEPS,
                f"rank 0: step 3 took {wall_s:g} s by the clock of its process, so no time counts",
                id=f"a_step_of_{wall_s}_s",
            )
            for wall_s in (0.0, -0.5, math.inf)
        ),
    ],
)
def test_reports_that_are_no_measurement_fail_with_their_reason(
    tmp_path: Path, results: list[RankResult], kind: FailureKind, detail: str
) -> None:
    failure = failure_of(outcome_of(tmp_path, *results))
    assert (failure.kind, failure.detail) == (kind, detail)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rank": 0}', "\ufffd", "null"])
def test_a_result_that_cannot_be_read_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "result.json").write_text(content)
    failure = failure_of(outcome_of(tmp_path, result_of(1)))
    assert failure.detail == "rank 0 ended without reporting an optimizer step"


SPLIT_MODEL = replace(EXPECTED.layout, tensor_parallel=2, sequence_parallel=True)


STRATEGIES = {
    "the_same": (EXPECTED, {}, None),
    "another_strategy": (
        EXPECTED,
        {"zero_stage": 0, "recompute": Recompute.FULL},
        "zero_stage 0 instead of 1, recompute full instead of none",
    ),
    "another_knob": (
        replace(EXPECTED, extras=(("bucket_cap_mb", 5), ("blocks_per_unit", 2))),
        {"extras": (("bucket_cap_mb", 25),)},
        "bucket_cap_mb 25 instead of 5, blocks_per_unit missing instead of 2",
    ),
    "ranks_that_split_the_model_otherwise": (
        replace(EXPECTED, layout=SPLIT_MODEL),
        {},
        "tensor_parallel 1 instead of 2, sequence_parallel False instead of True",
    ),
}


@pytest.mark.parametrize(("expected", "applied", "wrong"), STRATEGIES.values(), ids=STRATEGIES)
def test_a_strategy_that_ran_otherwise_is_named_beside_the_one_requested(
    tmp_path: Path, expected: Candidate, applied: Changes, wrong: str | None
) -> None:
    other = result_of(1, applied=replace(APPLIED, **applied))
    outcome = outcome_of(tmp_path, replace(other, rank=0), other, expected=expected)
    if wrong is None:
        measure(outcome)
    else:
        failure = failure_of(outcome)
        assert failure.kind is FailureKind.NOT_APPLIED
        assert failure.detail == f"rank 0: ran with {wrong}"


def test_steps_without_any_strategy_applied_are_no_measurement(tmp_path: Path) -> None:
    results = (result_of(rank, applied=None) for rank in (0, 1))
    failure = failure_of(outcome_of(tmp_path, *results, expected=EXPECTED))
    assert failure.kind is FailureKind.NOT_APPLIED


@pytest.mark.parametrize(("split", "matches"), [((2, 2), True), ((1, 3), False)])
def test_a_split_that_names_the_even_one_ran_where_the_stages_are_even(
    split: tuple[int, ...], matches: bool
) -> None:
    asked = replace(EXPECTED.layout, pipeline_parallel=2, pipeline_split=split)
    result = result_of(applied=replace(APPLIED, pipeline_parallel=2))
    assert (mismatch(result, Candidate(layout=asked), None) is None) is matches


CHECKED = (
    ("micro_batch", "--batch_size"),
    ("zero_stage", "--fsdp"),
    ("recompute", "--gradient_checkpointing"),
)


@pytest.mark.parametrize(
    ("applied", "says", "smaller"),
    [
        ({"micro_batch": 7}, "micro_batch 7 instead of 2 (asked by --batch_size)", None),
        ({"micro_batch": 1}, "micro_batch 1 instead of 2 (asked by --batch_size)", 1),
        (
            {"recompute": Recompute.SELECTIVE},
            "recompute selective instead of none (asked by --gradient_checkpointing)",
            None,
        ),
        ({"zero_stage": 0}, "zero_stage 0 instead of 1 (asked by --fsdp); Net: DDP", None),
    ],
)
def test_a_script_that_ignores_its_argument_is_named(
    tmp_path: Path, applied: Changes, says: str, smaller: int | None
) -> None:
    found = replace(APPLIED, description="Net: DDP over 2 ranks", **applied)
    results = (result_of(rank, applied=found) for rank in (0, 1))
    outcome = outcome_of(tmp_path, *results, expected=EXPECTED, checked=CHECKED)
    task = plan_of(tmp_path).task
    assert task
    adopted = adopt(task, world_size=2, expected=EXPECTED, checked=CHECKED)
    for failure in (failure_of(outcome), failure_of(adopted)):
        assert failure.kind is FailureKind.NOT_APPLIED
        assert says in failure.detail
        assert failure.ran_micro_batch == smaller


@pytest.mark.parametrize(
    ("applied", "requested"),
    [
        ({}, Recompute.NONE),
        ({"accumulation": 9}, Recompute.NONE),  # is not checked
        ({"micro_batch": 0}, Recompute.NONE),  # was not counted
        ({"recompute": None}, Recompute.NONE),
        ({"recompute": Recompute.SELECTIVE}, Recompute.FULL),  # a switch does not say how much
    ],
)
def test_what_is_not_checked_or_not_counted_is_no_failure(
    tmp_path: Path, applied: Changes, requested: Recompute
) -> None:
    results = (result_of(rank, applied=replace(APPLIED, **applied)) for rank in (0, 1))
    expected = replace(EXPECTED, layout=replace(EXPECTED.layout, recompute=requested))
    measure(outcome_of(tmp_path, *results, expected=expected, checked=CHECKED))


TRACE = ("Traceback (most recent call last):", "  f()", "ValueError: x")


LOGGED = {
    "of_a_rank_that_exited": (ends_of(1, 1), TRACE),
    "after_a_signal_it_is_the_peers": (ends_of(-9, 0), ()),
}


@pytest.mark.parametrize(("end", "shown"), LOGGED.values(), ids=LOGGED)
def test_the_error_that_a_rank_left_in_the_log_is_attached(
    tmp_path: Path, end: RanksEnd, shown: tuple[str, ...]
) -> None:
    (tmp_path / "stderr.log").write_text("\n".join(("UserWarning: odd", *TRACE, "9%|#", "")))
    assert failure_of(outcome_of(tmp_path, end=end)).log_tail == shown


def given_up(reason: Failure, after_s: float, *codes: int) -> RanksEnd:
    """An end on request after a time."""
    return replace(
        ends_of(*codes or (-15, -15)),
        terminated_unix_s=START_S + after_s,
        cancelled=Cancelled(reason=reason, unix_s=START_S + after_s),
    )


TIMED_OUT = Failure(kind=FailureKind.TIMED_OUT, detail="took too long")
LATE = given_up(TIMED_OUT, 9)


CANCELLED = {
    "the_reason_given": ([], LATE, FailureKind.TIMED_OUT),
    "not_what_ranks_say_of_being_cancelled": (
        [crash(0)],
        given_up(TIMED_OUT, 9, 1, -15),
        FailureKind.TIMED_OUT,
    ),
    "a_full_report_outlives_it": ([result_of(0), result_of(1)], LATE, None),
    "a_failure_before_it": ([result_of(0, OUT_OF_MEMORY, after_s=5)], LATE, OUT_OF_MEMORY),
}


@pytest.mark.parametrize(("results", "end", "kind"), CANCELLED.values(), ids=CANCELLED)
def test_a_cancelled_launch_has_the_reason_given_unless_it_was_over(
    tmp_path: Path, results: list[RankResult], end: RanksEnd, kind: FailureKind | None
) -> None:
    outcome = outcome_of(tmp_path, *results, end=end)
    assert (outcome.failure.kind if isinstance(outcome, FailedTrial) else None) is kind


PROFILES = {
    "needs_no_steps": ({"steps": ()}, True, 0, None),
    "an_error_before_it_is_over": ({}, True, 1, CRASHED),
    "an_error_after_it_is_over": ({"end_step": 3}, True, 1, None),
    "must_describe_the_model": ({}, False, 0, FailureKind.NO_STEPS),
}


@pytest.mark.parametrize(("result", "describes", "code", "kind"), PROFILES.values(), ids=PROFILES)
def test_a_profile_run_has_described_the_model(
    tmp_path: Path, result: Changes, describes: bool, code: int, kind: FailureKind | None
) -> None:
    if describes:
        (tmp_path / "model_info.json").write_text("{}")
    report(tmp_path, result_of(0, **result))
    plan = plan_of(tmp_path, ranks=1)
    assert plan.task
    plan = replace(plan, task=replace(plan.task, mode=Mode.PROFILE))
    outcome = read_outcome(plan, ends_of(code))
    assert (outcome.failure.kind if isinstance(outcome, FailedTrial) else None) is kind
    if kind is FailureKind.NO_STEPS:
        detail = "the script ended before its model could be described"
        assert failure_of(outcome).detail == detail


def test_a_plan_without_a_task_has_no_outcome(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no task"):
        outcome_of(tmp_path, task=None)


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 0), 0), ((0, 3), 3), ((-15, 0), 143), ((4, -9), 4)]
)
def test_the_exit_code_is_that_of_the_first_rank_that_failed(
    codes: tuple[int, ...], expected: int
) -> None:
    assert ends_of(*codes).exit_code == expected


ADOPTED = {
    "a_full_report": ([result_of(0), result_of(1)], Measurement),
    "no_memory": ([result_of(0), result_of(1, OUT_OF_MEMORY)], FailedTrial),
    "not_with_a_result_missing": ([result_of(0)], type(None)),
    "not_with_too_few_steps": (
        [result_of(0), result_of(1, steps=steps_of(9, 9, 1, 2))],
        type(None),
    ),
    "not_a_crash_as_of_the_controller": ([result_of(0), crash(1)], type(None)),
}


@pytest.mark.parametrize(("results", "adopted"), ADOPTED.values(), ids=ADOPTED)
def test_a_report_is_adopted_without_a_controller_if_it_settles_the_outcome(
    tmp_path: Path, results: list[RankResult], adopted: type[Outcome | None]
) -> None:
    report(tmp_path, *results)
    task = plan_of(tmp_path).task
    assert task
    assert type(adopt(task, world_size=2, expected=EXPECTED)) is adopted


STALLED = given_up(Failure(kind=FailureKind.STALLED, detail="made 4 steps, then none"), 5)
WENT_ON = Asides(went_on=WentOn.EPOCH)
EVALUATES = Asides(evaluations=1, evaluation_batches=9, under_way=Aside.EVALUATION)
BROKE = replace(WENT_ON, broke="by zero")


def told_to_end(code: int) -> RanksEnd:
    """Rank 0 exits with this, and rank 1 is ended for it."""
    return replace(ends_of(code, -15, after_s=(5.0, 6.0)), terminated_unix_s=START_S + 5.5)


def leave_unfinished(plan: LaunchPlan, rank: int, asides: Asides | None) -> None:
    assert plan.task
    path = sign_path(plan.task, unfinished_sign(rank))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(encode(result_of(rank, asides=asides))))


def soak(folder: Path, *asides: Asides | None, end: RanksEnd, is_soak: bool = True) -> Outcome:
    """The outcome of a launch whose ranks left these in results that are unfinished."""
    plan = plan_of(folder, soak=is_soak)
    for rank, left in enumerate(asides):
        leave_unfinished(plan, rank, left)
    return read_outcome(plan, end)


@pytest.mark.parametrize("asides", [EVALUATES, WENT_ON])
def test_a_soak_that_is_ended_in_a_long_evaluation_or_after_its_steps_has_passed(
    tmp_path: Path, asides: Asides
) -> None:
    found = measure(soak(tmp_path, asides, asides, end=STALLED))
    assert (found.step_s, found.asides) == ((1, 2, 3), asides)


STALLS = {
    "that_hangs_in_its_steps": ((Asides(), None), True),
    "whose_rank_says_nothing": ((EVALUATES,), True),
    "that_is_no_soak": ((EVALUATES, None), False),
}


@pytest.mark.parametrize(("asides", "is_soak"), STALLS.values(), ids=STALLS)
def test_a_launch_is_stalled(
    tmp_path: Path, asides: tuple[Asides | None, ...], is_soak: bool
) -> None:
    outcome = soak(tmp_path, *asides, end=STALLED, is_soak=is_soak)
    assert failure_of(outcome).kind is FailureKind.STALLED


DEATHS = {
    "in_an_evaluation": (EVALUATES, ends_of(-9, -15)),
    "after_its_steps": (WENT_ON, told_to_end(-9)),
}


@pytest.mark.parametrize(("asides", "end"), DEATHS.values(), ids=DEATHS)
def test_a_soak_that_dies_fails_and_says_where(
    tmp_path: Path, asides: Asides, end: RanksEnd
) -> None:
    outcome = soak(tmp_path, asides, asides, end=end)
    assert isinstance(outcome, FailedTrial)
    assert (outcome.failure.kind, "rank 0" in outcome.failure.detail) == (CRASHED, True)
    assert outcome.asides == asides


@pytest.mark.parametrize(("asides", "passed"), [(WENT_ON, True), (Asides(), False)])
def test_a_rank_that_was_ended_for_another_has_passed_if_it_had_made_its_steps(
    tmp_path: Path, asides: Asides, passed: bool
) -> None:
    plan = plan_of(tmp_path, soak=True)
    report(tmp_path, result_of(0, asides=BROKE))
    leave_unfinished(plan, 1, asides)
    outcome = read_outcome(plan, told_to_end(1))
    if passed:
        found = measure(outcome)
        assert (found.step_s, found.asides and found.asides.broke) == ((1, 2, 3), "by zero")
    else:
        assert failure_of(outcome).kind is CRASHED
