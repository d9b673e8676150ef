"""Requirements of a launch on its dialect, and the files cleared after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoconf_launch.autotuner.space import Trial
from autoconf_launch.core import BlockSpec, Candidate, Grade, Layout, Mode, ModelSpec, RankTask
from autoconf_launch.launcher.tuning.trial_io import clear_saved, needs_of, soak_task


def trial(*, soak_steps: int = 0, attempt: int = 1) -> Trial:
    return Trial(
        number=1,
        name="z0_gas4_tmbspg2",
        candidate=Candidate(layout=Layout(accumulation=4)),
        space="z0",
        soak_steps=soak_steps,
        attempt=attempt,
    )


def task_in(folder: Path, mode: Mode = Mode.MEASURE) -> RankTask:
    return RankTask(mode=mode, folder=str(folder), attempt="a1", end_step=20)


def model_of(parameters: int) -> ModelSpec:
    return ModelSpec(grade=Grade.OPAQUE, blocks=(BlockSpec(name="all", parameters=parameters),))


def test_a_soak_asks_for_an_evaluation_and_a_checkpoint(tmp_path: Path) -> None:
    needs = needs_of(task_in(tmp_path), trial(soak_steps=20), None)
    assert (needs.evaluates, needs.saves) == (True, True)
    assert (needs.steps, needs.accumulation) == (20, 4)


@pytest.mark.parametrize(
    "other", [trial(), trial(soak_steps=20, attempt=2)], ids=["trial", "again"]
)
def test_a_trial_and_a_second_attempt_ask_for_neither(tmp_path: Path, other: Trial) -> None:
    needs = needs_of(task_in(tmp_path), other, None)
    assert (needs.evaluates, needs.saves) == (False, False)


def test_a_checkpoint_that_finds_no_room_on_the_disk_is_left_out(tmp_path: Path) -> None:
    soak = trial(soak_steps=20)
    small = needs_of(task_in(tmp_path), soak, model_of(1000))
    large = needs_of(task_in(tmp_path), soak, model_of(10**18))
    assert (small.saves, large.saves, large.evaluates) == (True, False, True)


@pytest.mark.parametrize(("attempt", "ends"), [(1, True), (2, False)])
def test_only_in_a_first_attempt_the_data_ends_with_the_steps(
    tmp_path: Path, attempt: int, ends: bool
) -> None:
    task = soak_task(task_in(tmp_path), trial(soak_steps=7, attempt=attempt), None)
    assert (task.soak, task.end_step, task.ends_epoch) == (True, 7, ends)


def test_a_short_soak_counts_from_a_step_that_it_has(tmp_path: Path) -> None:
    assert soak_task(task_in(tmp_path), trial(soak_steps=2), None).start_step == 2


def test_without_room_on_the_disk_no_checkpoint_after_an_epoch_is_provoked(tmp_path: Path) -> None:
    assert not soak_task(task_in(tmp_path), trial(soak_steps=7), model_of(10**18)).ends_epoch


def test_what_a_trial_saved_is_removed_and_its_results_stay(tmp_path: Path) -> None:
    for name in ("output/checkpoint-7/model.bin", "saved/12_model.pt", "result.json"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    clear_saved(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
