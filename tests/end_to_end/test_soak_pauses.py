"""The winner's soak has the script's own evaluation and checkpoint in it, or says that not."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Place

pytestmark = pytest.mark.usefixtures("one_thread")

SCRIPT = str(Path(__file__).parent / "scripts" / "pausing.py")
QUICK = ("--num_gpus=1", "--max-parallel-trials=1", "--soak_steps=12", "--end_profile_step=5")
CONSENT = "--allow-global-batch-change"


@pytest.mark.slow
def test_both_come_within_its_steps_and_leave_nothing_behind(place: Place) -> None:
    one = "--knob=train_micro_batch_size_per_gpu=[4]"
    code, output = place.run("--autotuning=tune", *QUICK, CONSENT, one, SCRIPT)
    assert code == 0, output
    assert "Exercised: 1 evaluation (2 batches), 1 checkpoint (" in output
    soak = place.results / "z0_gas1_tmbspg4_soak"
    assert "--eval-interval 9 --save-interval 7" in (soak / "cmd.txt").read_text()
    assert "interval" not in (place.results / "cmd_optimal.txt").read_text()
    left = list(place.folder.rglob("*.pt"))
    assert left == []


@pytest.mark.slow
def test_who_has_no_memory_for_its_evaluation_gives_way_to_a_safer_one(place: Place) -> None:
    flags = ("--memory-limit=400MB", "--knob=train_micro_batch_size_per_gpu=[4, 64]")
    words = ("--batch-size", "4", "--eval-megabytes", "10")
    code, output = place.run("--autotuning=tune", *QUICK, CONSENT, *flags, SCRIPT, *words)
    assert code == 0, output
    assert "z0_gas1_tmbspg64 failed its verification run (out_of_memory: " in output
    assert "the evaluation that followed optimizer step 9" in output
    summary = place.summary()
    assert summary["winner"] == "z0_gas1_tmbspg4", output


@pytest.mark.slow
def test_words_that_the_script_cannot_take_are_taken_back(place: Place) -> None:
    text = (
        Path(SCRIPT)
        .read_text()
        .replace(
            "arguments = parser.parse_args()",
            "arguments = parser.parse_args()\nassert arguments.eval_interval >= 100, 'too often'",
        )
    )
    script = place.folder / "choosy.py"
    script.write_text(text)
    one = "--knob=train_micro_batch_size_per_gpu=[4]"
    code, output = place.run("--autotuning=tune", *QUICK, CONSENT, one, str(script))
    assert code == 0, output
    assert "Not exercised: evaluation, checkpointing" in output
    assert "A first attempt, with the script's evaluation and checkpoint moved into" in output
    assert "too often" in output
