from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import ModelSpec
from autoconf_launch.launcher.events import (
    Event,
    Finished,
    ModelProfiled,
    RoundFinished,
    SpaceBuilt,
    Standing,
    StepSeen,
    TrialFinished,
    TrialStarted,
    TuneBegun,
)
from autoconf_launch.launcher.live.board import Board, PhaseProgress, TunePhase
from autoconf_launch.launcher.report import RowKind

from ..report.fixed import RECORDS, RUNNING, STEP, events, steps_of, trial

RUNNING_LABEL = "ZeRO 1 · micro 16 · accum 1"
NO_MODEL: ModelSpec | None = None


def board(*said: Event) -> Board:
    made = Board()
    for event in said:
        made.take(event)
    return made


def test_a_tune_begins_with_its_profile_run_and_then_builds_its_space() -> None:
    made = board()
    made.session_s = 75.2
    assert (made.phase, made.progress, made.headline()) == (TunePhase.PROFILE, None, "1:15")
    assert board(ModelProfiled(spec=None, wall_s=1.0)).phase is TunePhase.SPACE


def test_a_search_counts_its_trials_of_all_candidates() -> None:
    made = board(*events())
    assert (made.phase, made.progress) == (TunePhase.SEARCH, PhaseProgress(6, 20))
    assert made.answer() == "best so far: ZeRO 1 · micro 8 · accum 2, 500.00 samples/s"
    rows = made.rows(9)
    best = [row.cells[1] for row in rows if row.kind is RowKind.BEST]
    assert best == ["ZeRO 1 · micro 8 · accum 2"]
    assert (rows[2].cells[-1], rows[2].kind) == ("out_of_memory", RowKind.FAILED)
    assert board(TuneBegun(trials=8), *events()).progress == PhaseProgress(6, 8)
    started = board(TrialStarted(trial=RUNNING, prediction=None))
    assert (started.progress, started.time_left()) == (PhaseProgress(1, None), None)
    row = started.rows(1)[0]
    assert (row.cells[-1], row.kind) == ("starting", RowKind.RUNNING)


def test_the_time_left_is_a_range_that_narrows_with_the_trials_left() -> None:
    many, few = (board(*events(), TuneBegun(trials=most)).time_left() for most in (20, 8))
    assert many is not None
    assert few is not None
    assert 0.0 < few.low_s < few.high_s < many.high_s


def test_a_budget_counts_from_the_commands_start_and_bounds_what_is_left() -> None:
    made = Board()
    made.session_s = 30.0
    made.take(TuneBegun(budget_s=100.0))
    for event in events():
        made.take(event)
    made.session_s = 75.0
    assert made.headline() == "1:15 · 3 to 25 s left · 75 % of the budget (1:40)"


def test_a_finished_study_says_so() -> None:
    made = board(*events(), Finished(text=""))
    assert (made.phase, made.time_left(), made.answer()[:5]) == (TunePhase.DONE, None, "best:")


def test_time_of_earlier_sessions_counts() -> None:
    made = board(TrialFinished(record=RECORDS[0], best=RECORDS[0], elapsed_s=3.5, resumed=True))
    made.session_s = 10.0
    assert made.headline() == "0:13"


CONTENDERS = (RECORDS[3], RECORDS[1], RECORDS[0])


def in_round(number: int) -> list[Event]:
    """Starts and ends of a round's launches."""
    trials = [
        replace(r.trial, name=f"{r.trial.name}_final", final=True, attempt=number)
        for r in CONTENDERS
    ]
    pairs = list(zip(trials, CONTENDERS, strict=True))
    return [
        *(TrialStarted(trial=trial, prediction=None) for trial in trials),
        *(
            TrialFinished(record=replace(r, trial=trial), best=r, elapsed_s=10.0 * number)
            for trial, r in pairs
        ),
    ]


def stood(number: int, *places: int) -> RoundFinished:
    """The end of a round with these contenders in their order."""
    standings = tuple(
        Standing(trial=CONTENDERS[place].trial, behind=0.1 * rank, width=0.05)
        for rank, place in enumerate(places)
    )
    return RoundFinished(number=number, elapsed_s=10.0 * number, standings=standings)


def labels(made: Board) -> list[str]:
    return [row.cells[1] for row in made.rows(9)]


def test_rows_of_the_playoff_move_as_their_standing_does() -> None:
    made = board(*events(), *in_round(1), stood(1, 1, 0, 2))
    order = ["ZeRO 0 · micro 8 · accum 2", "ZeRO 1 · micro 8 · accum 2"]
    assert labels(made)[:2] == order
    made.take(stood(2, 0, 1, 2))
    assert labels(made)[:3] == [*reversed(order), "ZeRO 0 · micro 1 · accum 16"]
    assert [row.cells[-1] for row in made.rows(3)] == [
        "leads",
        "10.5 % slower (+5.1 to +16.2 %)",
        "22.1 % slower (+16.2 to +28.4 %)",
    ]


def test_a_playoff_counts_its_rounds() -> None:
    made = board(*events(), *in_round(1)[:3])
    assert (made.phase, made.progress) == (TunePhase.PLAYOFF, PhaseProgress(1, None))
    made.take(stood(1, 0, 1, 2))
    assert made.progress == PhaseProgress(2, None)


def test_a_verification_run_counts_its_steps_on_the_winners_row() -> None:
    made = board(*events(), *in_round(1), stood(1, 1, 0, 2))
    name = f"{RECORDS[1].trial.name}_soak"
    soak = replace(RECORDS[1].trial, name=name, soak_steps=50)
    made.take(TrialStarted(trial=soak, prediction=None))
    made.take(StepSeen(trial=soak, step=replace(STEP, step=12)))
    assert (made.phase, made.progress) == (TunePhase.VERIFICATION, PhaseProgress(12, 50))
    assert made.rows(1)[0].cells[-1] == "verification run"
    made.take(StepSeen(trial=soak, step=replace(STEP, step=40)))
    early = made.time_left()
    made.take(StepSeen(trial=soak, step=replace(STEP, step=45)))
    late = made.time_left()
    assert early is not None
    assert late is not None
    assert late.low_s == pytest.approx(5 / 10 * early.low_s)


def test_at_the_end_each_configuration_has_its_one_speed() -> None:
    one = replace(RECORDS[1], outcome=steps_of(0.2))
    made = board(*events(), *in_round(1), stood(1, 1, 0, 2), Finished(text="", compared=(one,)))
    assert made.rows(1)[0].cells[4] == "160.00"
    assert made.answer() == "best: ZeRO 0 · micro 8 · accum 2, 160.00 samples/s"


def test_a_trial_has_one_row_from_its_start_to_its_end() -> None:
    started = TrialStarted(trial=RECORDS[0].trial, prediction=None)
    finished = TrialFinished(record=RECORDS[0], best=None, elapsed_s=3.5)
    assert len(board(started, finished)) == 1


def test_a_running_trial_shows_its_last_step() -> None:
    late = StepSeen(trial=RUNNING, step=replace(STEP, rank=0, step=2))
    assert board(*events(), late).rows(1)[0].cells[-1] == "step 3"


def test_a_second_attempt_has_its_own_row_and_is_no_further_trial() -> None:
    again = TrialStarted(trial=replace(RUNNING, attempt=2), prediction=None)
    made = board(*events(), again)
    names = [row.cells[1] for row in made.rows(2)]
    assert names == [RUNNING_LABEL, f"{RUNNING_LABEL} (second attempt)"]
    assert made.progress == PhaseProgress(6, 20)


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
    assert (shown.phase, shown.progress) == (TunePhase.SEARCH, PhaseProgress(6, 20))
