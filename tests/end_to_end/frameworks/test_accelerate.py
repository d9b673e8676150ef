"""An Accelerate script with accumulation, started plainly and by ``accelerate launch``."""

from __future__ import annotations

import pytest

from .conftest import ONE_AT_A_TIME, WITH_SOAK, LaunchIt, Run, as_asked, script

pytestmark = pytest.mark.slow
WORDS = (script("accelerated"), "--batch_size", "4")
LARGER = "--knob=train_micro_batch_size_per_gpu=[8]"


@pytest.fixture(scope="module")
def plain(launched: LaunchIt) -> Run:
    flags = ("--autotuning=run", "--num_gpus=1", *ONE_AT_A_TIME, LARGER)
    return launched(*flags, *WORDS, "--with_tracking")


@pytest.fixture(scope="module")
def by_its_launcher(launched: LaunchIt) -> Run:
    launcher = ("accelerate", "launch", "--num_processes", "2", "--cpu")
    return launched("--autotuning=tune", *ONE_AT_A_TIME, LARGER, *launcher, *WORDS)


def test_it_is_tuned_and_trained_to_the_scripts_own_end(plain: Run) -> None:
    assert plain.code == 0, plain.output
    assert plain.trained == [(64, 8)], plain.output


def test_the_launchers_flags_are_ours(by_its_launcher: Run) -> None:
    assert by_its_launcher.code == 0, by_its_launcher.output
    found = {rank["applied"]["description"] for _, rank in by_its_launcher.ranks()}
    assert found == {"Sequential: DDP over 2 ranks, AdamW"}


def test_accumulation_moves_with_the_micro_batch(plain: Run, by_its_launcher: Run) -> None:
    assert as_asked(plain), plain.output
    assert as_asked(by_its_launcher), by_its_launcher.output


def test_trials_tell_no_tracker_and_leave_nothing(plain: Run, by_its_launcher: Run) -> None:
    assert {path.name for path in (plain.folder / "runs").glob("*/*.v*.0")} != set()
    assert len(list((plain.folder / "runs").glob("*/events*"))) == 1, "of the training alone"
    assert by_its_launcher.left() == set()


def test_ranks_that_accelerate_does_not_join_are_found_out(launched: LaunchIt) -> None:
    run = launched("--autotuning=tune", "--num_gpus=2", *ONE_AT_A_TIME, LARGER, *WORDS)
    assert run.code == 3, run.output
    assert "the 2 ranks did not synchronize gradients" in run.output
    assert "ACCELERATE_USE_CPU=true" in run.output


def test_the_winners_soak_meets_what_comes_after_an_epoch(launched: LaunchIt) -> None:
    launcher = ("accelerate", "launch", "--num_processes", "2", "--cpu")
    run = launched("--autotuning=tune", *WITH_SOAK, LARGER, *launcher, *WORDS, "--validate")
    assert run.code == 0, run.output
    assert "the last step used the longest batch seen" in run.output
    assert "Exercised: 1 evaluation (2 ba" in run.output
    assert ", 1 checkpoint (" in run.output
    assert (run.checkpoints(), run.left()) == ([], set())


def test_folders_of_checkpoints_are_not_left(launched: LaunchIt) -> None:
    flags = ("--autotuning=tune", "--num_gpus=1", *WITH_SOAK)
    today = "--knob=train_micro_batch_size_per_gpu=[4]"
    run = launched(*flags, today, script("accelerate_checkpoints"))
    assert run.code == 0, run.output
    assert "Exercised: 1" in run.output
    assert run.left() == set()
