from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import Trial
from autoconf_launch.core import (
    END_FILE,
    STEPS_FILE,
    Candidate,
    FailureKind,
    Layout,
    Mode,
    RankTask,
    compile_sign,
    sign_path,
)
from autoconf_launch.launcher.hosts import Share
from autoconf_launch.launcher.plan import LaunchPlan, RankPlan
from autoconf_launch.launcher.tuning import TrialLimits
from autoconf_launch.launcher.tuning.running import Running, Waiting

from ..replay_backend import ReplayJob

LINE = '{"rank": %d, "step": %d, "wall_s": %f, "samples": 4}\n'
LIMITS = TrialLimits(timeout_s=60.0, stall_s=5.0)
TRIAL = Trial(number=1, name="t1", candidate=Candidate(layout=Layout()), space="z0")


def running(folder: Path, most_steps: int | None = 9) -> Running:
    """A trial of two ranks that has just been submitted."""
    task = RankTask(mode=Mode.MEASURE, folder=str(folder), attempt="now", most_steps=most_steps)
    ranks = tuple(
        RankPlan(rank=rank, local_rank=rank, argv=("true",), environment=()) for rank in range(2)
    )
    plan = LaunchPlan(name="t1", ranks=ranks, working_directory=".", folder=str(folder), task=task)
    job = ReplayJob(plan, None)
    return Running(Waiting(trial=TRIAL, plan=plan), job=job, share=Share())


def write_steps(folder: Path, *steps: tuple[int, int, float]) -> None:
    with (folder / STEPS_FILE).open("a") as file:
        file.writelines(LINE % step for step in steps)


def test_steps_of_all_ranks_are_followed(tmp_path: Path) -> None:
    trial = running(tmp_path)
    write_steps(tmp_path, (0, 1, 0.5), (1, 1, 0.75), (0, 2, 0.5))
    assert len(list(trial.new_steps())) == 3
    assert trial.step_s == (0.75,)
    assert list(trial.new_steps()) == []


def test_ranks_are_told_of_another_end_alone(tmp_path: Path) -> None:
    trial = running(tmp_path)
    trial.end_at(5)
    assert not (tmp_path / END_FILE).exists()
    trial.end_at(7)
    assert (tmp_path / END_FILE).read_text() == "now 7"


def test_ranks_whose_end_is_fixed_are_told_nothing(tmp_path: Path) -> None:
    trial = running(tmp_path, most_steps=None)
    trial.end_at(7)
    assert not trial.is_steerable
    assert not (tmp_path / END_FILE).exists()
    assert trial.look_s() == float("inf")


def test_the_next_step_is_looked_for_when_it_is_due(tmp_path: Path) -> None:
    trial = running(tmp_path)
    write_steps(tmp_path, (0, 1, 2.0), (1, 1, 2.0))
    list(trial.new_steps())
    assert 1.5 < trial.look_s() - time.monotonic() < 2.2


def test_silence_is_counted_from_the_last_step(tmp_path: Path) -> None:
    trial = running(tmp_path)
    before_s = trial.due_s(LIMITS)
    write_steps(tmp_path, (0, 1, 0.1))
    list(trial.new_steps())
    assert trial.due_s(LIMITS) < before_s
    assert trial.overdue(LIMITS).kind is FailureKind.STALLED


def test_a_trial_that_makes_no_step_has_until_its_deadline(tmp_path: Path) -> None:
    trial = running(tmp_path)
    assert trial.due_s(LIMITS) - time.monotonic() == pytest.approx(60.0, abs=1.0)
    assert trial.overdue(replace(LIMITS, timeout_s=0.0)).kind is FailureKind.TIMED_OUT


def test_who_was_cancelled_is_waited_for(tmp_path: Path) -> None:
    trial = running(tmp_path)
    trial.cancelled = True
    assert trial.due_s(LIMITS) == trial.look_s() == float("inf")


def test_a_trial_that_hangs_has_made_the_steps_of_its_ranks_and_not_their_sum(
    tmp_path: Path,
) -> None:
    trial = running(tmp_path)
    write_steps(tmp_path, (0, 1, 0.5), (1, 1, 0.75), (0, 2, 0.5), (1, 2, 0.5))
    assert len(list(trial.new_steps())) == 4
    failure = trial.overdue(LIMITS)
    assert failure.kind is FailureKind.STALLED
    assert failure.detail.startswith("made 2 steps, then none for")


def write_compile_time(folder: Path, spent_s: float, since_s: float | None) -> None:
    task = RankTask(mode=Mode.MEASURE, folder=str(folder), attempt="now")
    path = sign_path(task, compile_sign(1))
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{spent_s} {since_s or ''}")


def test_the_time_that_a_rank_compiles_is_not_counted_up_to_the_trials_own(
    tmp_path: Path,
) -> None:
    trial = running(tmp_path)
    trial.started_s -= LIMITS.timeout_s + 1.0
    assert trial.due_s(LIMITS) < time.monotonic()
    write_compile_time(tmp_path, 20.0, None)
    assert trial.due_s(LIMITS) == pytest.approx(trial.started_s + LIMITS.timeout_s + 20.0)
    write_compile_time(tmp_path, 20.0, time.time() - 1000.0)
    assert trial.due_s(LIMITS) == pytest.approx(trial.started_s + 2 * LIMITS.timeout_s)
    trial.started_s -= LIMITS.timeout_s
    assert trial.due_s(LIMITS) < time.monotonic()
    failure = trial.overdue(LIMITS)
    assert failure.kind is FailureKind.TIMED_OUT
    assert "of compiling not counted" in failure.detail


def test_a_rank_that_compiles_between_two_steps_has_not_stalled(tmp_path: Path) -> None:
    trial = running(tmp_path)
    write_steps(tmp_path, (0, 1, 0.1), (1, 1, 0.1))
    list(trial.new_steps())
    trial.progress_s -= LIMITS.stall_s + 1.0
    assert trial.due_s(LIMITS) < time.monotonic()
    write_compile_time(tmp_path, 0.0, time.time() - 2.0)
    assert trial.due_s(LIMITS) > time.monotonic() + LIMITS.stall_s - 1.0
