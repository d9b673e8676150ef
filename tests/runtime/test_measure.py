"""Trials of real ranks: what they report, whichever way they end."""

from typing import Any

import pytest

from autoconf_launch.core import FailureKind, Mode, Precision

LIMIT_BYTES = 20_000_000
ALONE = (
    "slow_loader",
    "not_finite",
    "raises_in_step",
    "raises_between_steps",
    "ends_before_it_counts",
    "ends_early",
    "unknown_parameter",
    "needs_too_much",
    "big",
    "big_and_built",
)
LIMITED = ("needs_too_much", "big", "big_and_built")


@pytest.fixture(scope="module")
def ended(launch: Any) -> dict[str, Any]:
    """All scenarios of one rank by name."""

    def run(name: str) -> Any:
        limit = LIMIT_BYTES if name in LIMITED else None
        return launch("scenario.py", name, mode=Mode.MEASURE, end_step=5, memory_limit_bytes=limit)

    return {name: run(name) for name in ALONE}


@pytest.fixture(scope="module")
def two_ranks(launch: Any) -> Any:
    return launch("scenario.py", "goes_well", ranks=2, mode=Mode.MEASURE, end_step=4)


def test_ranks_leave_with_success_after_the_last_step(two_ranks: Any) -> None:
    assert two_ranks.exit_codes == (0, 0), two_ranks.errors
    assert "reached the end" not in "".join(two_ranks.outputs)


def test_each_rank_reports_every_step_of_this_launch(two_ranks: Any) -> None:
    results = [two_ranks.result(rank) for rank in range(2)]
    shown = [(r.rank, r.world_size, r.attempt, r.failure) for r in results]
    assert shown == [(0, 2, "attempt-1", None), (1, 2, "attempt-1", None)]
    assert [[step.step for step in result.steps] for result in results] == [[1, 2, 3, 4]] * 2
    assert len({tuple(step.loss for step in result.steps) for result in results}) == 1
    lines = {(line["rank"], line["step"]) for line in two_ranks.step_lines()}
    assert lines == {(rank, step) for rank in range(2) for step in range(1, 5)}


def test_strategy_and_memory_are_reported(two_ranks: Any) -> None:
    applied, memory = two_ranks.result().applied, two_ranks.result().memory
    shown = (applied.zero_stage, applied.data_parallel, applied.precision)
    assert shown == (0, 2, Precision.FP32)
    assert 0 <= memory.peak_bytes < memory.free_before_bytes < memory.limit_bytes


def test_the_scripts_own_work_between_steps_counts(ended: dict[str, Any]) -> None:
    assert all(step.wall_s > 0.1 for step in ended["slow_loader"].result().steps)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("not_finite", FailureKind.NAN),
        ("raises_in_step", FailureKind.CRASHED),
        ("raises_between_steps", FailureKind.CRASHED),
        ("unknown_parameter", FailureKind.BAD_CONFIG),
        ("needs_too_much", FailureKind.OUT_OF_MEMORY),
        ("big", FailureKind.OUT_OF_MEMORY),
        ("big_and_built", FailureKind.OUT_OF_MEMORY),
    ],
)
def test_a_rank_that_fails_says_why_and_exits_with_1(
    ended: dict[str, Any], name: str, kind: FailureKind
) -> None:
    assert (ended[name].failure_kind(), ended[name].exit_codes) == (kind, (1,))


def test_a_crash_is_told_with_type_and_message_and_its_traceback(ended: dict[str, Any]) -> None:
    assert "ValueError: a mistake in the model" in ended["raises_in_step"].errors[0]
    failure = ended["raises_between_steps"].result().failure
    assert failure.detail == "KeyError: 'a mistake in the script'"


def test_a_bad_configuration_names_the_nearest_key(ended: dict[str, Any]) -> None:
    assert "did you mean 'momentum'?" in ended["unknown_parameter"].result().failure.detail


def test_the_loss_that_is_no_number_is_in_the_step_file(ended: dict[str, Any]) -> None:
    assert ended["not_finite"].step_lines()[-1]["loss"] == "nan"


def test_a_script_that_ends_too_soon_says_how_many_steps_it_made(ended: dict[str, Any]) -> None:
    failure = ended["ends_before_it_counts"].result().failure
    assert failure.kind is FailureKind.NO_STEPS
    assert "ended after 2 optimizer steps, but at least 3 are needed" in failure.detail


def test_a_script_that_ends_early_reports_the_steps_that_it_made(ended: dict[str, Any]) -> None:
    result = ended["ends_early"].result()
    assert (len(result.steps), result.failure) == (4, None)


@pytest.mark.parametrize("name", LIMITED)
def test_the_limit_was_free_before_and_what_was_refused_counts_in_the_peak(
    ended: dict[str, Any], name: str
) -> None:
    memory = ended[name].result().memory
    assert memory.free_before_bytes == memory.limit_bytes == LIMIT_BYTES < memory.peak_bytes


def test_one_rank_out_of_memory_ends_the_other_and_is_told_first(launch: Any) -> None:
    both = launch(
        "scenario.py",
        "one_of_two_needs_too_much",
        ranks=2,
        mode=Mode.MEASURE,
        memory_limit_bytes=10 * LIMIT_BYTES,
    )
    kinds = [both.failure_kind(rank) for rank in range(2)]
    in_order = both.result(1).ended_unix_s <= both.result(0).ended_unix_s
    assert (kinds, in_order) == ([FailureKind.CRASHED, FailureKind.OUT_OF_MEMORY], True)


@pytest.mark.parametrize(
    ("name", "last"),
    [
        pytest.param("told_to_end_at_3", 3, id="earlier"),
        pytest.param("told_to_end_at_1", 3, id="earlier than it can"),
        pytest.param("told_to_end_at_7", 7, id="later"),
        pytest.param("told_late", 6, id="never beyond the most"),
        pytest.param("goes_well", 5, id="not at all"),
    ],
)
def test_all_ranks_end_at_the_step_that_the_launcher_says(
    launch: Any, name: str, last: int
) -> None:
    most = max(6, last)
    task = {"mode": Mode.MEASURE, "start_step": 2, "end_step": 5, "most_steps": most}
    both = launch("scenario.py", name, ranks=2, **task)
    assert both.exit_codes == (0, 0), both.errors
    results = [both.result(rank) for rank in range(2)]
    assert [(len(r.steps), r.end_step) for r in results] == [(last, last)] * 2


def test_an_end_that_may_not_be_moved_is_not(launch: Any) -> None:
    one = launch("scenario.py", "told_to_end_at_3", mode=Mode.MEASURE, end_step=5)
    assert len(one.result().steps) == 5


def test_a_soak_takes_its_steps_apart(launch: Any) -> None:
    ended = launch("scenario.py", "goes_well", ranks=2, mode=Mode.MEASURE, end_step=6, soak=True)
    phases = dict(ended.result().phases)
    assert list(phases) == ["forward", "backward", "exchange", "update"]
    assert min(phases["forward"], phases["backward"], phases["update"]) > 0
    assert sum(phases.values()) <= max(step.wall_s for step in ended.result().steps)


def test_steps_that_are_compared_are_not_taken_apart(two_ranks: Any) -> None:
    assert two_ranks.result().phases == ()


def test_a_model_that_is_measured_can_be_compiled_to_torchscript(launch: Any) -> None:
    ended = launch("scenario.py", "to_torchscript", mode=Mode.MEASURE, end_step=5)
    assert (ended.failure_kind(), ended.outputs) == (None, ("0\n" * 4,)), ended.errors


def test_a_helper_that_fails_says_nothing_of_the_rank(launch: Any) -> None:
    ended = launch("scenario.py", "helper_fails", mode=Mode.MEASURE, end_step=5)
    assert (len(ended.result().steps), ended.outputs) == (5, ("[]\n",)), ended.errors
