import json
import math
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.core import (
    AppliedStrategy,
    Aside,
    Asides,
    Candidate,
    Failure,
    FailureKind,
    Layout,
    MemoryUse,
    Mode,
    Precision,
    RankResult,
    RankTask,
    Recompute,
    StepRecord,
    WentOn,
    encode,
    result_file,
    sign_path,
    unfinished_sign,
)
from autoconf_launch.launcher.launch import Cancelled, RankExit, RanksEnd, adopt, read_outcome
from autoconf_launch.launcher.launch.outcome import mismatch
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan

START_S = 1000.0
EXPECTED = Candidate(layout=Layout(data_parallel=2, zero_stage=1, micro_batch=2, accumulation=1))
APPLIED = AppliedStrategy(
    zero_stage=1,
    data_parallel=2,
    micro_batch=2,
    accumulation=1,
    precision=Precision.FP32,
    recompute=Recompute.NONE,
)


def plan_of(folder: Path, *, ranks: int = 2, expected: Candidate | None = None) -> LaunchPlan:
    return LaunchPlan(
        name="z1_gas1_tmbspg2",
        ranks=tuple(
            RankPlan(rank=rank, local_rank=rank, argv=("python", "train.py"), environment=())
            for rank in range(ranks)
        ),
        working_directory=str(folder),
        folder=str(folder),
        task=RankTask(
            mode=Mode.MEASURE, folder=str(folder), attempt="now", start_step=3, end_step=5
        ),
        expected=expected,
    )


def steps_of(rank: int, *seconds: float, loss: float | None = 1.0) -> tuple[StepRecord, ...]:
    return tuple(
        StepRecord(rank=rank, step=number, wall_s=wall_s, samples=4, loss=loss)
        for number, wall_s in enumerate(seconds, 1)
    )


def result_of(rank: int = 0, kind: FailureKind | None = None, **more: object) -> RankResult:
    failure = None if kind is None else Failure(kind=kind, detail=f"{kind.value} it is")
    result = RankResult(
        rank=rank,
        world_size=2,
        attempt="now",
        ended_unix_s=START_S + 10,
        steps=() if failure else steps_of(rank, 9, 9, 1, 2, 3),
        failure=failure,
        applied=APPLIED,
    )
    return replace(result, **more)  # type: ignore[arg-type]


def report(folder: Path, *results: RankResult) -> None:
    for result in results:
        path = folder / result_file(result.rank)
        path.write_text(json.dumps(encode(result)))


def ends_of(*codes: int, after_s: tuple[float, ...] | None = None) -> RanksEnd:
    times = after_s or tuple(10.0 + rank for rank in range(len(codes)))
    return RanksEnd(
        exits=tuple(
            RankExit(code=code, unix_s=START_S + after)
            for code, after in zip(codes, times, strict=True)
        )
    )


def failure_of(outcome: Outcome | None) -> Failure:
    assert isinstance(outcome, FailedTrial)
    return outcome.failure


def measure(outcome: Outcome | None) -> Measurement:
    assert isinstance(outcome, Measurement), outcome
    return outcome


def test_the_slowest_rank_of_each_step_that_counts_is_taken(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1, steps=steps_of(1, 9, 9, 5, 1, 1)))
    outcome = measure(read_outcome(plan_of(tmp_path), ends_of(0, 0)))
    assert outcome.step_s == (5, 2, 3)


def test_a_trial_that_was_told_to_go_on_is_measured_to_its_end(tmp_path: Path) -> None:
    six = steps_of(0, 9, 9, 1, 2, 3, 4)
    report(tmp_path, result_of(0, steps=six, end_step=6), result_of(1, steps=six, end_step=6))
    outcome = measure(read_outcome(plan_of(tmp_path), ends_of(0, 0)))
    assert (outcome.first_step, outcome.step_s) == (3, (1, 2, 3, 4))


def test_of_a_trial_that_ended_before_its_steps_count_the_last_one_does(tmp_path: Path) -> None:
    two = steps_of(0, 9, 8)
    report(tmp_path, result_of(0, steps=two, end_step=2), result_of(1, steps=two, end_step=2))
    outcome = measure(read_outcome(plan_of(tmp_path), ends_of(0, 0)))
    assert (outcome.first_step, outcome.step_s) == (2, (8,))


def test_the_losses_of_all_steps_are_kept_beside_those_that_count(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1))
    outcome = measure(read_outcome(plan_of(tmp_path), ends_of(0, 0)))
    assert (outcome.losses, outcome.all_losses) == ((1.0,) * 3, (1.0,) * 5)


def test_samples_are_summed_over_ranks(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1))
    assert measure(read_outcome(plan_of(tmp_path), ends_of(0, 0))).samples_per_step == 8


def test_losses_are_means_over_ranks(tmp_path: Path) -> None:
    other = result_of(1, steps=steps_of(1, 1, 1, 1, 1, 1, loss=2.0))
    report(tmp_path, result_of(0), other)
    assert measure(read_outcome(plan_of(tmp_path), ends_of(0, 0))).losses == (1.5, 1.5, 1.5)


def test_the_memory_of_the_rank_with_the_highest_peak_is_kept(tmp_path: Path) -> None:
    little = MemoryUse(free_before_bytes=9, peak_bytes=1, limit_bytes=9)
    much = replace(little, peak_bytes=8)
    report(tmp_path, result_of(0, memory=little), result_of(1, memory=much))
    assert measure(read_outcome(plan_of(tmp_path), ends_of(0, 0))).memory == much


def test_flops_are_summed_over_ranks(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, flops_per_step=2.0), result_of(1, flops_per_step=3.0))
    assert measure(read_outcome(plan_of(tmp_path), ends_of(0, 0))).flops_per_step == 5.0


def test_flops_that_one_rank_did_not_count_are_unknown(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, flops_per_step=2.0), result_of(1))
    assert measure(read_outcome(plan_of(tmp_path), ends_of(0, 0))).flops_per_step is None


def test_a_script_that_ends_early_is_measured_over_the_steps_it_made(tmp_path: Path) -> None:
    results = [result_of(rank, steps=steps_of(rank, 9, 9, 1, 2)) for rank in (0, 1)]
    report(tmp_path, *results)
    assert measure(read_outcome(plan_of(tmp_path), ends_of(0, 0))).step_s == (1, 2)


def test_a_crash_after_the_full_report_takes_nothing_away(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1))
    assert isinstance(read_outcome(plan_of(tmp_path), ends_of(0, -11)), Measurement)


def test_a_crash_before_the_last_step_is_a_crash(tmp_path: Path) -> None:
    results = [result_of(rank, steps=steps_of(rank, 9, 9, 1, 2)) for rank in (0, 1)]
    report(tmp_path, *results)
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(0, 7)))
    assert (failure.kind, "rank 1 ended with exit code 7" in failure.detail) == (
        FailureKind.CRASHED,
        True,
    )


def test_the_word_error_in_the_log_means_nothing(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("error: out of memory\n")
    report(tmp_path, result_of(0), result_of(1))
    assert isinstance(read_outcome(plan_of(tmp_path), ends_of(0, 0)), Measurement)


def test_results_of_an_earlier_attempt_do_not_count(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, attempt="before"), result_of(1, attempt="before"))
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(0, 0)))
    assert failure.kind is FailureKind.NO_STEPS


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rank": 0}', "\ufffd", "null"])
def test_a_result_that_cannot_be_read_counts_as_none(tmp_path: Path, content: str) -> None:
    report(tmp_path, result_of(1))
    (tmp_path / "result.json").write_text(content)
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(0, 0)))
    assert failure.detail == "rank 0 ended without reporting an optimizer step"


def test_ranks_of_another_world_than_was_started_are_no_measurement(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1))
    failure = failure_of(read_outcome(plan_of(tmp_path, ranks=1), ends_of(0)))
    assert failure.kind is FailureKind.NOT_APPLIED
    assert failure.detail == "the script ran with 2 ranks instead of 1"


def test_too_few_steps_are_said_with_both_numbers(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, steps=steps_of(0, 9, 9), world_size=1))
    failure = failure_of(read_outcome(plan_of(tmp_path, ranks=1), ends_of(0)))
    assert failure.detail == (
        "the script ended after 2 optimizer steps, before start_profile_step 3; "
        "it must make at least 5"
    )


def test_out_of_memory_wins_over_an_earlier_crash_of_the_peer(tmp_path: Path) -> None:
    memory = MemoryUse(free_before_bytes=9, peak_bytes=9, limit_bytes=9)
    late = result_of(1, FailureKind.OUT_OF_MEMORY, ended_unix_s=START_S + 99, memory=memory)
    report(tmp_path, result_of(0, FailureKind.CRASHED), late)
    outcome = read_outcome(plan_of(tmp_path), ends_of(1, 1))
    assert isinstance(outcome, FailedTrial)
    assert (outcome.failure.kind, outcome.memory) == (FailureKind.OUT_OF_MEMORY, memory)


def test_the_earliest_crash_is_the_cause(tmp_path: Path) -> None:
    report(
        tmp_path,
        result_of(0, FailureKind.CRASHED, ended_unix_s=START_S + 2),
        result_of(1, FailureKind.CRASHED, ended_unix_s=START_S + 1),
    )
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(1, 1)))
    assert failure.detail == "rank 1: crashed it is"


def test_a_broken_connection_does_not_hide_the_death_that_broke_it(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, FailureKind.CRASHED, ended_unix_s=START_S + 9.9))
    end = ends_of(1, -signal.SIGKILL, after_s=(11.0, 10.0))
    failure = failure_of(read_outcome(plan_of(tmp_path), end))
    assert "rank 1 was killed by SIGKILL; the kernel may have run out" in failure.detail


def test_an_abort_that_a_peers_crash_caused_is_not_the_cause(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, FailureKind.CRASHED, ended_unix_s=START_S + 9.9))
    end = ends_of(1, -signal.SIGABRT, after_s=(11.0, 10.0))
    assert failure_of(read_outcome(plan_of(tmp_path), end)).detail == "rank 0: crashed it is"


def test_a_lost_peer_is_no_cause_where_the_peer_has_one(tmp_path: Path) -> None:
    lost = Failure(kind=FailureKind.CRASHED, detail="Connection closed", lost_peer=True)
    report(tmp_path, replace(result_of(0), failure=lost), result_of(1, FailureKind.CRASHED))
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(1, 1)))
    assert failure.detail == "rank 1: crashed it is"
    (tmp_path / result_file(1)).unlink()
    end = ends_of(1, 3, after_s=(10.0, 20.0))
    assert "exit code 3" in failure_of(read_outcome(plan_of(tmp_path), end)).detail
    end = replace(end, terminated_unix_s=START_S)
    assert "Connection closed" in failure_of(read_outcome(plan_of(tmp_path), end)).detail


def test_a_rank_that_left_without_an_error_is_named_beside_its_peers_crash(
    tmp_path: Path,
) -> None:
    early = result_of(1, steps=steps_of(1, 9, 9), ended_early=True)
    report(tmp_path, result_of(0, FailureKind.CRASHED), early)
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(1, 0, after_s=(11.0, 60.0))))
    assert failure.detail == ("rank 0: crashed it is; rank 1 had ended without an error before it")


def test_a_rank_that_ended_well_after_a_crash_is_not_named(tmp_path: Path) -> None:
    late = result_of(1, ended_early=True, ended_unix_s=START_S + 20)
    report(tmp_path, result_of(0, FailureKind.CRASHED), late)
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(1, 0, after_s=(10.0, 20.0))))
    assert failure.detail == "rank 0: crashed it is"


def test_ranks_that_we_ended_are_no_cause(tmp_path: Path) -> None:
    end = replace(ends_of(3, -15, after_s=(10, 12)), terminated_unix_s=START_S + 11)
    failure = failure_of(read_outcome(plan_of(tmp_path), end))
    assert failure.detail == "rank 0 ended with exit code 3 and did not report why"


@pytest.mark.parametrize(
    ("number", "name"), [(11, "SIGSEGV"), (6, "SIGABRT"), (15, "SIGTERM"), (50, "signal 50")]
)
def test_the_signal_of_a_death_is_named(tmp_path: Path, number: int, name: str) -> None:
    failure = failure_of(read_outcome(plan_of(tmp_path, ranks=1), ends_of(-number)))
    assert failure.detail == f"rank 0 was killed by {name}"


def test_a_loss_that_is_no_number_is_a_failure(tmp_path: Path) -> None:
    bad = result_of(1, steps=steps_of(1, 1, 1, 1, 1, 1, loss=float("nan")))
    report(tmp_path, result_of(0), bad)
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(0, 0)))
    assert (failure.kind, failure.detail) == (
        FailureKind.NAN,
        "rank 1: the loss is not a number at step 1",
    )


def test_the_strategy_that_ran_is_the_one_asked_for(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1))
    assert isinstance(
        read_outcome(plan_of(tmp_path, expected=EXPECTED), ends_of(0, 0)), Measurement
    )


def test_another_strategy_is_named_beside_the_one_asked_for(tmp_path: Path) -> None:
    other = replace(APPLIED, zero_stage=0, recompute=Recompute.FULL)
    report(tmp_path, result_of(0), result_of(1, applied=other))
    failure = failure_of(read_outcome(plan_of(tmp_path, expected=EXPECTED), ends_of(0, 0)))
    assert (failure.kind, failure.detail) == (
        FailureKind.NOT_APPLIED,
        "rank 1: ran with zero_stage 0 instead of 1, recompute full instead of none",
    )


def test_a_further_knob_that_ran_otherwise_is_named(tmp_path: Path) -> None:
    applied = replace(APPLIED, extras=(("bucket_cap_mb", 25),))
    asked = replace(EXPECTED, extras=(("bucket_cap_mb", 5), ("blocks_per_unit", 2)))
    report(tmp_path, result_of(0, applied=applied), result_of(1, applied=applied))
    failure = failure_of(read_outcome(plan_of(tmp_path, expected=asked), ends_of(0, 0)))
    assert failure.detail == (
        "rank 0: ran with bucket_cap_mb 25 instead of 5, blocks_per_unit missing instead of 2"
    )


def test_ranks_that_split_the_model_otherwise_are_named(tmp_path: Path) -> None:
    layout = replace(EXPECTED.layout, tensor_parallel=2, sequence_parallel=True)
    report(tmp_path, result_of(0), result_of(1))
    plan = plan_of(tmp_path, expected=replace(EXPECTED, layout=layout))
    assert failure_of(read_outcome(plan, ends_of(0, 0))).detail == (
        "rank 0: ran with tensor_parallel 1 instead of 2, sequence_parallel False instead of True"
    )


def test_steps_without_any_strategy_applied_are_no_measurement(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, applied=None), result_of(1, applied=None))
    failure = failure_of(read_outcome(plan_of(tmp_path, expected=EXPECTED), ends_of(0, 0)))
    assert failure.kind is FailureKind.NOT_APPLIED


TRACE = ("Traceback (most recent call last):", "  f()", "ValueError: x")


def test_the_error_that_a_rank_left_in_the_log_is_attached(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("\n".join(("UserWarning: odd", *TRACE, "9%|#", "")))
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(1, 1)))
    assert failure.log_tail == TRACE


def test_after_a_signal_an_error_in_the_shared_log_is_the_peers(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("\n".join((*TRACE, "")))
    assert failure_of(read_outcome(plan_of(tmp_path), ends_of(-9, 0))).log_tail == ()


@pytest.mark.parametrize("wall_s", [0.0, -0.5, math.inf])
def test_times_that_no_clock_can_show_are_a_failure(tmp_path: Path, wall_s: float) -> None:
    report(tmp_path, result_of(0, steps=steps_of(0, 9, 9, wall_s, 2, 3)), result_of(1))
    failure = failure_of(read_outcome(plan_of(tmp_path), ends_of(0, 0)))
    assert failure.kind is FailureKind.NO_STEPS
    assert failure.detail.startswith(f"rank 0: step 3 took {wall_s:g} s by the clock")


def test_a_broken_connection_is_not_shown_as_the_reason(tmp_path: Path) -> None:
    gone = Failure(
        kind=FailureKind.CRASHED,
        detail="peer gone",
        log_tail=TRACE,
        lost_peer=True,
    )
    report(tmp_path, result_of(0, failure=gone))
    assert failure_of(read_outcome(plan_of(tmp_path), ends_of(1, 0))).log_tail == ()


TIMED_OUT = Failure(kind=FailureKind.TIMED_OUT, detail="took too long")


def cancel(end: RanksEnd, after_s: float) -> RanksEnd:
    return replace(
        end,
        terminated_unix_s=START_S + after_s,
        cancelled=Cancelled(reason=TIMED_OUT, unix_s=START_S + after_s),
    )


def test_a_cancelled_launch_has_the_reason_given(tmp_path: Path) -> None:
    end = cancel(ends_of(-15, -15), 9)
    assert failure_of(read_outcome(plan_of(tmp_path), end)) == TIMED_OUT


def test_what_ranks_say_of_being_cancelled_does_not_count(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, FailureKind.CRASHED))
    end = cancel(ends_of(1, -15), 9)
    assert failure_of(read_outcome(plan_of(tmp_path), end)) == TIMED_OUT


def test_a_full_report_outlives_a_cancel(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1))
    end = cancel(ends_of(-15, -15), 9)
    assert isinstance(read_outcome(plan_of(tmp_path), end), Measurement)


def test_a_failure_from_before_the_cancel_stands(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, FailureKind.OUT_OF_MEMORY, ended_unix_s=START_S + 5))
    failure = failure_of(read_outcome(plan_of(tmp_path), cancel(ends_of(-15, -15), 9)))
    assert failure.kind is FailureKind.OUT_OF_MEMORY


def profile_of(folder: Path) -> LaunchPlan:
    plan = plan_of(folder, ranks=1)
    assert plan.task is not None
    return replace(plan, task=replace(plan.task, mode=Mode.PROFILE))


def test_a_profile_run_needs_no_steps(tmp_path: Path) -> None:
    report(tmp_path, result_of(0, steps=()))
    (tmp_path / "model_info.json").write_text("{}")
    assert measure(read_outcome(profile_of(tmp_path), ends_of(0))).step_s == ()


def test_a_script_that_exits_with_an_error_before_its_profile_is_over_has_crashed(
    tmp_path: Path,
) -> None:
    report(tmp_path, result_of(0))
    (tmp_path / "model_info.json").write_text("{}")
    failure = failure_of(read_outcome(profile_of(tmp_path), ends_of(1)))
    assert failure.kind is FailureKind.CRASHED
    report(tmp_path, result_of(0, end_step=3))
    measure(read_outcome(profile_of(tmp_path), ends_of(1)))


def test_a_profile_run_must_describe_the_model(tmp_path: Path) -> None:
    report(tmp_path, result_of(0))
    failure = failure_of(read_outcome(profile_of(tmp_path), ends_of(0)))
    assert failure.detail == "the script ended before its model could be described"


def test_a_plan_without_a_task_has_no_outcome(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no task"):
        read_outcome(replace(plan_of(tmp_path), task=None), ends_of(0, 0))


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 0), 0), ((0, 3), 3), ((-15, 0), 143), ((4, -9), 4)]
)
def test_the_exit_code_is_that_of_the_first_rank_that_failed(
    codes: tuple[int, ...], expected: int
) -> None:
    assert ends_of(*codes).exit_code == expected


def adopt_again(folder: Path) -> Outcome | None:
    task = plan_of(folder).task
    assert task is not None
    return adopt(task, world_size=2, expected=EXPECTED)


def test_a_full_report_without_a_controller_is_adopted(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1))
    assert measure(adopt_again(tmp_path)).step_s == (1, 2, 3)


def test_a_result_that_is_missing_is_not_adopted(tmp_path: Path) -> None:
    report(tmp_path, result_of(0))
    assert adopt_again(tmp_path) is None


def test_too_few_steps_are_not_adopted(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1, steps=steps_of(1, 9, 9, 1, 2)))
    assert adopt_again(tmp_path) is None


def test_an_out_of_memory_is_adopted(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1, FailureKind.OUT_OF_MEMORY))
    assert failure_of(adopt_again(tmp_path)).kind is FailureKind.OUT_OF_MEMORY


def test_a_crash_is_not_adopted_for_it_may_be_the_controllers_death(tmp_path: Path) -> None:
    report(tmp_path, result_of(0), result_of(1, FailureKind.CRASHED))
    assert adopt_again(tmp_path) is None


STALLED = Failure(kind=FailureKind.STALLED, detail="made 4 steps, then none")
WENT_ON = Asides(went_on=WentOn.EPOCH)
EVALUATES = Asides(evaluations=1, evaluation_batches=9, under_way=Aside.EVALUATION)


def soak_of(folder: Path) -> LaunchPlan:
    plan = plan_of(folder)
    assert plan.task
    return replace(plan, task=replace(plan.task, soak=True))


def leave_unfinished(plan: LaunchPlan, *results: RankResult) -> None:
    assert plan.task
    for result in results:
        path = sign_path(plan.task, unfinished_sign(result.rank))
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(encode(result)))


def given_up() -> RanksEnd:
    cancelled = Cancelled(reason=STALLED, unix_s=START_S + 5)
    return replace(ends_of(-15, -15), terminated_unix_s=START_S + 5, cancelled=cancelled)


def test_a_soak_that_is_ended_in_a_long_evaluation_counts_as_far_as_it_came(
    tmp_path: Path,
) -> None:
    plan = soak_of(tmp_path)
    leave_unfinished(plan, result_of(0, asides=EVALUATES), result_of(1))
    found = measure(read_outcome(plan, given_up()))
    assert (found.step_s, found.asides) == ((1, 2, 3), EVALUATES)


def test_a_soak_that_hangs_in_its_steps_is_stalled(tmp_path: Path) -> None:
    plan = soak_of(tmp_path)
    leave_unfinished(plan, result_of(0, asides=Asides()), result_of(1))
    assert failure_of(read_outcome(plan, given_up())).kind is FailureKind.STALLED


def test_a_soak_whose_rank_says_nothing_is_stalled(tmp_path: Path) -> None:
    plan = soak_of(tmp_path)
    leave_unfinished(plan, result_of(0, asides=EVALUATES))
    assert failure_of(read_outcome(plan, given_up())).kind is FailureKind.STALLED


def test_a_trial_that_is_no_soak_is_stalled_in_an_evaluation_too(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    leave_unfinished(plan, result_of(0, asides=EVALUATES), result_of(1))
    assert failure_of(read_outcome(plan, given_up())).kind is FailureKind.STALLED


def test_a_soak_that_dies_in_an_evaluation_fails_and_says_where(tmp_path: Path) -> None:
    plan = soak_of(tmp_path)
    leave_unfinished(plan, result_of(0, asides=EVALUATES), result_of(1))
    outcome = read_outcome(plan, ends_of(-9, -15))
    assert failure_of(outcome).kind is FailureKind.CRASHED
    assert isinstance(outcome, FailedTrial)
    assert outcome.asides == EVALUATES


def told_to_end(code: int) -> RanksEnd:
    """Rank 0 exits with this, and rank 1 is ended for it."""
    return replace(ends_of(code, -15, after_s=(5.0, 6.0)), terminated_unix_s=START_S + 5.5)


def test_a_soak_that_is_given_up_after_its_steps_has_passed(tmp_path: Path) -> None:
    plan = soak_of(tmp_path)
    leave_unfinished(plan, result_of(0, asides=WENT_ON), result_of(1, asides=WENT_ON))
    assert measure(read_outcome(plan, given_up())).asides == WENT_ON


def test_a_rank_that_was_ended_after_its_steps_has_made_them(tmp_path: Path) -> None:
    plan = soak_of(tmp_path)
    report(tmp_path, result_of(0, asides=replace(WENT_ON, broke="by zero")))
    leave_unfinished(plan, result_of(1, asides=WENT_ON))
    found = measure(read_outcome(plan, told_to_end(1)))
    assert found.asides
    assert (found.step_s, found.asides.broke) == ((1, 2, 3), "by zero")


def test_a_rank_that_was_ended_within_its_steps_has_not(tmp_path: Path) -> None:
    plan = soak_of(tmp_path)
    report(tmp_path, result_of(0, asides=WENT_ON))
    leave_unfinished(plan, result_of(1, asides=Asides()))
    assert failure_of(read_outcome(plan, told_to_end(1))).kind is FailureKind.CRASHED


def test_a_rank_that_dies_after_its_steps_is_a_crash_whatever_it_had_said(tmp_path: Path) -> None:
    plan = soak_of(tmp_path)
    leave_unfinished(plan, result_of(0, asides=WENT_ON), result_of(1, asides=WENT_ON))
    failure = failure_of(read_outcome(plan, told_to_end(-9)))
    assert (failure.kind, "rank 0" in failure.detail) == (FailureKind.CRASHED, True)


def test_a_step_after_a_pause_has_the_time_of_the_rank_that_was_in_it(tmp_path: Path) -> None:
    results = (
        result_of(0, steps=steps_of(0, 9, 9, 1, 2, 3), asides=Asides(before_steps=(4,))),
        result_of(1, steps=steps_of(1, 9, 9, 1, 50, 4)),
    )
    report(tmp_path, *results)
    assert measure(read_outcome(plan_of(tmp_path), ends_of(0, 0))).step_s == (1, 2, 4)


def test_a_step_after_a_pause_takes_no_less_than_the_others(tmp_path: Path) -> None:
    """Work between a script's last step and the pause is in none of its times."""
    paused = Asides(before_steps=(4,))
    for rank in (0, 1):
        report(tmp_path, result_of(rank, steps=steps_of(rank, 9, 9, 6, 0.1, 5), asides=paused))
    assert measure(read_outcome(plan_of(tmp_path), ends_of(0, 0))).step_s == (6, 5, 5)


def test_a_split_that_names_the_even_one_ran_where_the_stages_are_even() -> None:
    asked = Layout(pipeline_parallel=2, pipeline_split=(2, 2), accumulation=2)
    applied = replace(
        APPLIED,
        zero_stage=0,
        data_parallel=1,
        micro_batch=1,
        accumulation=2,
        pipeline_parallel=2,
    )
    result = RankResult(rank=0, world_size=2, attempt="a", ended_unix_s=1.0, applied=applied)
    assert mismatch(result, Candidate(layout=asked), None) is None
    uneven = replace(asked, pipeline_split=(1, 3))
    assert mismatch(result, Candidate(layout=uneven), None) is not None
