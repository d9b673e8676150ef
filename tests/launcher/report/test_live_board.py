from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import ModelSpec
from autoconf_launch.launcher.events import (
    Event,
    Finished,
    ModelProfiled,
    SpaceBuilt,
    StepSeen,
    TrialFinished,
    TrialStarted,
)
from autoconf_launch.launcher.report.cells import RowKind
from autoconf_launch.launcher.report.live import Board

from .fixed import RECORDS, RUNNING, STEP, events, trial

RUNNING_LABEL = "ZeRO 1 · micro 16 · accum 1"
NO_MODEL: ModelSpec | None = None


def board(*said: Event) -> Board:
    made = Board()
    for event in said:
        made.take(event)
    return made


def test_before_the_profile_is_over_that_is_what_it_says() -> None:
    assert board().headline(75.2) == "1:15 | profiling the model"


def test_after_the_profile_the_space_is_built() -> None:
    assert board(ModelProfiled(spec=None, wall_s=1.0)).headline(0.0).endswith("search space")


def test_the_headline_has_stage_progress_and_best() -> None:
    assert board(*events()).headline(46.0) == (
        "0:46 | stage z1 | trial 6 of at most 20 | best z1_gas2_tmbspg8 500.00 samples/s"
    )


def test_a_finished_study_says_so() -> None:
    assert "| done |" in board(*events(), Finished(text="")).headline(0.0)


def test_time_of_earlier_sessions_counts() -> None:
    resumed = TrialFinished(record=RECORDS[0], best=RECORDS[0], elapsed_s=3.5, resumed=True)
    assert board(resumed).headline(10.0).startswith("0:13 |")


def test_a_trial_has_one_row_from_its_start_to_its_end() -> None:
    started = TrialStarted(trial=RECORDS[0].trial, prediction=None)
    finished = TrialFinished(record=RECORDS[0], best=None, elapsed_s=3.5)
    assert len(board(started, finished)) == 1


def test_a_running_trial_shows_its_last_step() -> None:
    late = StepSeen(trial=RUNNING, step=replace(STEP, rank=0, step=2))
    assert board(*events(), late).rows(1)[0].cells[-1] == "step 3"


def test_a_trial_without_a_step_is_starting() -> None:
    row = board(TrialStarted(trial=RUNNING, prediction=None)).rows(1)[0]
    assert (row.cells[-1], row.kind) == ("starting", RowKind.RUNNING)


def test_a_second_attempt_has_a_row_of_its_own() -> None:
    again = replace(RUNNING, attempt=2)
    rows = board(*events(), TrialStarted(trial=again, prediction=None)).rows(2)
    assert [row.cells[1] for row in rows] == [RUNNING_LABEL, f"{RUNNING_LABEL} (second attempt)"]


def test_a_second_attempt_is_no_further_trial() -> None:
    again = TrialStarted(trial=replace(RUNNING, attempt=2), prediction=None)
    assert "| trial 6 of" in board(*events(), again).headline(0.0)


def test_only_the_best_so_far_is_marked_best() -> None:
    rows = board(*events()).rows(9)
    assert [row.cells[1] for row in rows if row.kind is RowKind.BEST] == [
        "ZeRO 1 · micro 8 · accum 2"
    ]


def test_a_failed_trial_shows_its_kind() -> None:
    row = board(*events()).rows(9)[2]
    assert (row.cells[-1], row.kind) == ("out_of_memory", RowKind.FAILED)


def test_without_a_space_there_is_no_most() -> None:
    started = TrialStarted(trial=RUNNING, prediction=None)
    assert "| trial 1" in board(started).headline(0.0)
    assert "at most" not in board(started).headline(0.0)


@given(count=st.integers(0, 12), limit=st.integers(0, 12))
def test_the_newest_rows_are_given_in_order(count: int, limit: int) -> None:
    trials = [trial(number, 0, 1) for number in range(count)]
    named = [replace(one, name=str(one.number)) for one in trials]
    made = board(
        SpaceBuilt(considered=0, left=0, rejected=()),
        *(TrialStarted(trial=one, prediction=None) for one in named),
    )
    shown = [int(row.cells[0]) for row in made.rows(limit)]
    assert shown == list(range(count))[max(0, count - limit) :]


def test_what_is_launched_again_is_no_further_trial() -> None:
    again = replace(RECORDS[0].trial, name=f"{RECORDS[0].trial.name}_again", again=5)
    shown = board(*events(), TrialStarted(trial=again, prediction=None))
    assert shown.rows(1)[0].cells[1] == "ZeRO 0 · micro 1 · accum 16 (baseline again)"
    assert "trial 6 " in shown.headline(0.0)
    assert "playoff" not in shown.headline(0.0)
