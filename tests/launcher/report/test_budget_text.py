from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.autotuner.playoff import TimeParts
from autoconf_launch.autotuner.search import NoRoom, StopKind, StopReason
from autoconf_launch.launcher.report import (
    no_trial_text,
    profile_cut_text,
    room_text,
    stop_sentence,
)
from autoconf_launch.launcher.report.search import parts_text


@pytest.mark.parametrize(
    ("room", "trials", "text"),
    [
        (1, 3, "1 of 3, your own configuration; --budget 3m would cover them."),
        (2, 3, "2 of 3; --budget 3m would cover them."),
        (3, 3, "all of 3 trials."),
        (1, 1, "1 trial."),
    ],
)
def test_the_first_line_after_the_profile_says_how_many_trials_fit(
    room: int, trials: int, text: str
) -> None:
    said = room_text(25.4, room=room, trials=trials, budget_s=60.0, enough_s=150.0)
    assert said == f"A trial takes about 25 s; the budget of 60 s has room for {text}"


@pytest.mark.parametrize(
    ("profile_s", "budget_s", "needs_s", "why"),
    [
        (41.0, 60.0, 45.0, "the profile run took 41 s, and a trial may take 45 s"),
        (None, 40.0, 41.0, "a trial may take 41 s"),
    ],
)
def test_a_budget_that_has_no_room_for_a_trial_says_so_and_what_to_type(
    profile_s: float | None, budget_s: float, needs_s: float, why: str
) -> None:
    said = no_trial_text(needs_s, profile_s=profile_s, budget_s=budget_s, enough_s=140.0)
    start = (
        f"The budget of {budget_s:.0f} s has no room for a trial: {why}. Use --budget 3m for two "
        "trials."
    )
    assert said.startswith(start)
    goes_on = " The same command goes on from this profile run."
    assert said.removeprefix(start) == (goes_on if profile_s else "")
    used_up = no_trial_text(58.0, profile_s=55.0, budget_s=60.0, enough_s=140.0)
    assert used_up.endswith("Use --budget 3m for two trials.")


def test_a_profile_run_that_the_budget_cut_says_what_was_seen_of_it() -> None:
    def text(first_step_s: float | None) -> str:
        return profile_cut_text(120.0, Path("profile"), first_step_s=first_step_s, timeout_s=600.0)

    assert text(None) == (
        "The profile run did not end within the budget of 2 minutes, so nothing was measured. How "
        "long it takes is not known: allow more, such as --budget 6m, or leave --budget out, "
        "which gives each launch 10 minutes. Its output is in profile."
    )
    seen = "the first ended after 31 s, and the second had not ended when the run was stopped."
    assert f"It needs two optimizer steps of the script; {seen} How" in text(31.2)


@pytest.mark.parametrize(
    ("shortest_s", "kept"),
    [(41.0, ""), (15.0, ", 27 s of them for the playoff and the verification run")],
)
def test_what_remains_is_said_with_what_is_kept_where_that_decides(
    shortest_s: float, kept: str
) -> None:
    no_room = NoRoom(left_s=40.0, kept_s=27.0, shortest_s=shortest_s, candidates=2)
    assert stop_sentence(StopReason(kind=StopKind.BUDGET, budget="100 s", no_room=no_room)) == (
        "The budget of 100 s had no room for another trial: of the 2 candidates left the shortest "
        f"may take {shortest_s:.0f} s, and 40 s remained after the search{kept}."
    )


def test_the_whole_time_is_given_with_its_parts() -> None:
    parts = TimeParts(profile_s=14.0, trials_s=30.0, confirmation_s=14.0)
    assert parts_text(parts) == (
        "This command took 58 s: 14 s until the first trial, 30 s for trials, 14 s for the final "
        "comparison and verification run."
    )
    short = TimeParts(profile_s=14.0, trials_s=300.0, confirmation_s=0.0)
    assert parts_text(short) == (
        "This command took 5.23 minutes: 14 s until the first trial, 5 minutes for trials."
    )
