"""However a foreign script ends, its rank says why, once, and at once."""

import sys
from typing import Any

import pytest

from autoconf_launch.core import FailureKind, Mode
from autoconf_launch.launcher.machine import free_port

from .conftest import SCRIPTS, names_of_saved

FIRST_FIVE = [1, 2, 3, 4, 5]
OUT_OF_MEMORY = [
    ("uncaught",),
    ("in_the_first_step",),
    ("in_building_the_model",),
    ("caught_and_exit_1",),
    ("caught_and_os_exit",),
    ("caught_and_raise_exit", "forward"),
    ("caught_and_raise_exit", "backward"),
    ("caught_and_raise_exit", "step"),
    ("caught_and_return",),
    ("crashes_with_a_thread",),
]


@pytest.mark.parametrize("how", OUT_OF_MEMORY, ids="-".join)
def test_out_of_memory_is_said_whatever_the_script_does(probed: Any, how: tuple[str]) -> None:
    assert probed("endings.py", *how).failure_kind() is FailureKind.OUT_OF_MEMORY


def test_the_refused_allocation_counts_as_peak(probed: Any) -> None:
    assert probed("endings.py", "uncaught").result().memory.peak_bytes > 1 << 60


def test_out_of_memory_on_one_rank_of_two_is_reported_by_that_one(probed: Any) -> None:
    ended = probed("ddp.py", "--fail-on-rank=1", ranks=2)
    assert ended.failure_kind(1) is FailureKind.OUT_OF_MEMORY


def test_a_smaller_retry_reports_what_ran_and_that_memory_had_run_out(probed: Any) -> None:
    ended = probed("endings.py", "retries_smaller")
    assert (ended.failure(), ended.batches()) == (None, (4, 1))
    assert ended.result().caught.kind is FailureKind.OUT_OF_MEMORY


def test_another_error_is_a_crash_with_its_own_words(probed: Any) -> None:
    failure = probed("endings.py", "crashes").failure()
    shown = (failure.kind, "no such column" in failure.detail, failure.log_tail[-1])
    assert shown == (FailureKind.CRASHED, True, "KeyError: 'no such column'")


def test_an_error_after_which_the_process_hangs_still_ends_it(probed: Any) -> None:
    assert probed("endings.py", "crashes_with_a_thread").exit_codes == (1,)


def test_an_error_in_the_thread_that_trains_is_a_crash(probed: Any) -> None:
    result = probed("endings.py", "raises_in_a_thread").result()
    shown = (result.failure.kind, "no such column" in result.failure.detail, result.ended_early)
    assert shown == (FailureKind.CRASHED, True, False)


def test_an_exit_that_the_script_outlives_is_forgotten(probed: Any) -> None:
    assert probed("endings.py", "outlives_an_exit").result().ended_early


def test_an_exit_by_name_is_an_exit(probed: Any) -> None:
    ended = probed("endings.py", "exits_by_name")
    assert (ended.exit_codes, ended.result().ended_early) == ((0,), True), ended.errors


def test_a_stream_of_the_scripts_own_need_not_be_one_that_can_be_flushed(probed: Any) -> None:
    ended = probed("endings.py", "writes_to_a_stream_of_its_own")
    assert (ended.exit_codes, ended.steps(), ended.signs().get("broken")) == (
        (0,),
        FIRST_FIVE,
        None,
    )


def test_a_script_that_exits_1_by_itself_is_not_measured_as_ended_early(probed: Any) -> None:
    result = probed("endings.py", "exits_1_after_steps").result()
    assert (result.ended_early, result.end_step) == (False, None)


@pytest.mark.parametrize(("status", "early"), [("0", True), ("3", False)])
def test_a_sudden_end_is_an_early_one_only_with_status_0(
    probed: Any, status: str, early: bool
) -> None:
    ended = probed("endings.py", "leaves_at_once", status)
    assert (ended.exit_codes, ended.result().ended_early) == ((int(status),), early)


def test_a_script_that_swallows_exits_ends_all_the_same(probed: Any) -> None:
    ended = probed("endings.py", "swallows_exits")
    shown = (ended.exit_codes, ended.steps(), "swallowed" in ended.output)
    assert shown == ((0,), FIRST_FIVE, False)


def test_a_loss_that_is_not_finite_is_named(probed: Any) -> None:
    assert probed("endings.py", "diverges").failure_kind() is FailureKind.NAN


@pytest.mark.slow
def test_a_helper_that_trains_first_gives_way_to_the_training(launched: Any) -> None:
    ended = launched(sys.executable, str(SCRIPTS / "endings.py"), "helper_trains_first")
    assert (ended.steps(), "claim_rank0_1" in ended.signs()) == (FIRST_FIVE, True), ended.errors


@pytest.mark.slow
def test_helpers_and_trackers_claim_nothing(launched: Any) -> None:
    ended = launched(sys.executable, str(SCRIPTS / "endings.py"), "other_processes")
    claims = [sign for sign in ended.signs() if sign.startswith("claim")]
    assert (ended.steps(), claims) == (FIRST_FIVE, ["claim_rank0_0"]), ended.errors


def test_what_a_trial_leaves_is_listed(probed: Any) -> None:
    ended = probed("endings.py", "leaves_files")
    assert ended.result().left_behind == ("checkpoint.pt",)
    assert "log.txt" in names_of_saved(ended.folder)


def test_checkpoints_of_a_trial_are_put_away_and_prepared_data_is_not(probed: Any) -> None:
    ended = probed("endings.py", "saves_checkpoints")
    saved = names_of_saved(ended.folder)
    assert ended.result().left_behind == ("prepared.pt",)
    assert saved == ["checkpoint.pt", "open.pt"]


def test_a_training_that_the_probe_cannot_measure_is_ended_with_its_error(probed: Any) -> None:
    ended = probed("endings.py", "breaks_the_probe")
    assert "TypeError" in ended.signs()["broken"]
    assert (ended.exit_codes, "reached the end" in ended.output) == ((0,), False)


def test_a_usage_error_is_left_to_the_script(probed: Any) -> None:
    ended = probed("endings.py", "usage_error")
    shown = (ended.exit_codes, ended.has_reported(), "usage: train.py" in ended.errors)
    assert shown == ((2,), False, True)


@pytest.mark.slow
def test_spawned_ranks_report_each_for_itself(launched: Any) -> None:
    port = {"PORT": str(free_port())}
    ended = launched(sys.executable, str(SCRIPTS / "endings.py"), "spawns", more=port)
    steps = [ended.steps(rank)[:5] for rank in range(2)]  # nothing ties them: one may be ahead
    assert steps == [FIRST_FIVE] * 2, ended.errors


def test_who_trains_beside_the_reporting_process_ends_with_it(probed: Any) -> None:
    ended = probed("endings.py", "hogwild")
    assert (ended.steps(), "reached the end" in ended.output) == (FIRST_FIVE, True), ended.errors


@pytest.mark.slow
def test_a_spawned_rank_says_that_its_memory_ran_out(launched: Any) -> None:
    port = {"PORT": str(free_port())}
    ended = launched(sys.executable, str(SCRIPTS / "endings.py"), "spawns", "fails", more=port)
    assert ended.failure_kind(1) is FailureKind.OUT_OF_MEMORY, ended.errors


def test_a_profile_of_a_script_without_memory_fails_likewise(probed: Any) -> None:
    ended = probed("endings.py", "in_the_first_step", mode=Mode.PROFILE)
    assert ended.failure_kind() is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize("limit_bytes", [40_000_000, pytest.param(10_000_000, id="of weights")])
def test_an_emulated_limit_on_memory_is_met(probed: Any, limit_bytes: int) -> None:
    ended = probed("forwards.py", "large", memory_limit_bytes=limit_bytes)
    assert ended.failure_kind() is FailureKind.OUT_OF_MEMORY


def test_a_training_within_its_limit_is_measured(probed: Any) -> None:
    ended = probed("forwards.py", "large", memory_limit_bytes=200_000_000)
    assert (ended.failure(), ended.result().memory.limit_bytes) == (None, 200_000_000)
