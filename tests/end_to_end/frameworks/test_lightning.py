"""A Lightning script with additional flags, and another around LightningCLI."""

from __future__ import annotations

import pytest

from .conftest import ONE_AT_A_TIME, WITH_SOAK, LaunchIt, Run, as_asked, script

pytestmark = pytest.mark.slow
OWN = (script("lit_script"), "--batch_size", "4", "--accumulate_grad_batches", "2")
FIT = (script("lit_cli"), "fit", "--trainer.accelerator=cpu", "--trainer.max_epochs=1")
CLI = (*FIT, "--data.batch_size=4", "--trainer.accumulate_grad_batches=2")
LARGER = "--knob=train_micro_batch_size_per_gpu=[8]"
TODAY = "--knob=train_micro_batch_size_per_gpu=[4]"


@pytest.fixture(scope="module")
def own_flags(launched: LaunchIt) -> Run:
    flags = ("--autotuning=tune", "--num_gpus=2", *ONE_AT_A_TIME, LARGER)
    return launched(*flags, *OWN, "--devices", "2")


@pytest.fixture(scope="module")
def by_cli(launched: LaunchIt) -> Run:
    return launched("--autotuning=run", "--num_gpus=1", *ONE_AT_A_TIME, LARGER, *CLI)


def test_a_cli_is_tuned_and_trained_to_its_own_end(by_cli: Run) -> None:
    assert by_cli.code == 0, by_cli.output
    assert by_cli.trained == [(64, 8)], by_cli.output


def test_a_script_with_flags_of_its_own_is_tuned(own_flags: Run) -> None:
    assert own_flags.code == 0, own_flags.output
    found = {rank["applied"]["description"] for _, rank in own_flags.ranks()}
    assert len(found) == 1
    assert "DDP over 2 ranks" in found.pop()


def test_accumulation_moves_with_the_micro_batch(own_flags: Run, by_cli: Run) -> None:
    assert as_asked(own_flags), own_flags.output
    assert as_asked(by_cli), by_cli.output


def test_trials_leave_neither_logs_nor_checkpoints(own_flags: Run, by_cli: Run) -> None:
    assert own_flags.left() == set()
    versions = {path.name for path in (by_cli.folder / "lightning_logs").iterdir()}
    assert versions == {"version_0"}, "of the training alone"


def test_the_winners_soak_evaluates_and_saves_and_leaves_nothing(launched: LaunchIt) -> None:
    run = launched("--autotuning=tune", "--num_gpus=2", *WITH_SOAK, TODAY, *OWN, "--devices", "2")
    assert run.code == 0, run.output
    assert "Exercised: 1 evaluation (4 batches), 1 checkpoint (" in run.output
    assert (run.checkpoints(), run.left()) == ([], set())


def test_a_soak_without_a_validation_has_a_short_epoch_and_its_checkpoint(
    launched: LaunchIt,
) -> None:
    run = launched("--autotuning=tune", "--num_gpus=1", *WITH_SOAK, TODAY, *CLI)
    assert run.code == 0, run.output
    assert "Exercised: 2 checkpoints (" in run.output
    assert (run.checkpoints(), run.left()) == ([], set())
