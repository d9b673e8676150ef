"""The winner's soak comes to the evaluation and the checkpoint after an epoch, in every script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import SMALL, Place

pytestmark = pytest.mark.usefixtures("one_thread")

SCRIPTS = Path(__file__).parent / "scripts"
QUICK = ("--num_gpus=1", "--max-parallel-trials=1", "--effort=quick", "--soak_steps=12")
CONSENT = "--allow-global-batch-change"
HUNGRY = ("--eval-megabytes", "10")
LIMIT = "--memory-limit=400MB"


def own(place: Place, *flags: str, micro_batches: Any, words: tuple[str, ...] = ()) -> str:
    """Output of a tune of a script on our engine."""
    sizes = {"train_micro_batch_size_per_gpu": micro_batches, "gradient_accumulation_steps": 1}
    config = str(place.write_config({**SMALL, **sizes}))
    script = place.folder / "own.py" if words else SCRIPTS / "own_epochs.py"
    argv = (*QUICK, CONSENT, *flags, str(script), "--config", config, *words)
    code, output = place.here("--autotuning=tune", *argv)
    assert code == 0, output
    return output


def assert_small_is_taken(place: Place, output: str) -> None:
    assert "z0_gas1_tmbspg64 failed its verification run (out_of_memory: " in output
    assert "the evaluation that followed optimizer step 12" in output
    summary = place.summary()
    assert summary["winner"] == "z0_gas1_tmbspg4", output
    assert list(place.folder.rglob("*.pt")) == []


def test_an_engines_script_has_its_own_within_the_steps(place: Place) -> None:
    output = own(place, micro_batches=[4])
    assert "Exercised: 1 evaluation (2 batches), 1 checkpoint (" in output
    command = (place.results / "z0_gas1_tmbspg4_soak" / "cmd.txt").read_text()
    assert "--eval-every 9 --save-every 7" in command
    assert list(place.folder.rglob("*.pt")) == []


@pytest.mark.slow
def test_an_engines_script_without_memory_for_its_evaluation_gives_way(place: Place) -> None:
    text = (SCRIPTS / "own_epochs.py").read_text()
    (place.folder / "own.py").write_text(text.replace("_every", "_at").replace("-every", "-at"))
    output = own(place, LIMIT, micro_batches=[4, 64], words=HUNGRY)
    assert "its data was then cut off, as at the end of an epoch" in output
    assert_small_is_taken(place, output)


@pytest.mark.slow
def test_a_plain_script_without_memory_for_its_evaluation_gives_way(place: Place) -> None:
    knob = "--knob=train_micro_batch_size_per_gpu=[4, 64]"
    argv = (*QUICK, CONSENT, LIMIT, knob, str(SCRIPTS / "epochs.py"), "--batch-size", "4")
    code, output = place.run("--autotuning=tune", *argv, *HUNGRY)
    assert code == 0, output
    assert "its data was then cut off, as at the end of an epoch" in output
    assert_small_is_taken(place, output)


def plain(place: Place, *, old: str, new: str) -> tuple[int, str]:
    """Exit code and output of a tune of the plain loop with a change, at one micro-batch."""
    text = (SCRIPTS / "epochs.py").read_text()
    assert old in text
    (place.folder / "train.py").write_text("STEPS = [*range(3)]\n" + text.replace(old, new))
    knob = "--knob=train_micro_batch_size_per_gpu=[4]"
    return place.here("--autotuning=tune", *QUICK, CONSENT, knob, "train.py", "--batch-size", "4")


def test_a_crash_after_the_steps_leads_the_answer_and_the_exit_code(place: Place) -> None:
    code, output = plain(place, old="    torch.save(", new="    {}['accuracy']\n    torch.save(")
    assert code == 3, output
    crash = "crashed in its verification run, in or after its evaluation, after 12 steps: KeyError"
    assert output.index(crash) < output.index("Best: ")
    assert "Train with it once the script is fixed:" in output
    assert output.rstrip().endswith("KeyError: 'accuracy'")
    assert (place.results / "cmd_optimal.txt").exists()
    code, shown = place.here("show", str(place.results))
    assert crash in shown, shown


def test_the_traceback_of_your_own_configuration_is_shown_once(place: Place) -> None:
    step = "        optimizer.step()\n"
    few = f"{step}        print('step', STEPS.pop())\n"
    code, output = plain(place, old=step, new=few)
    assert code == 3, output
    assert output.count("IndexError: pop from empty list") > 1, output
    assert output.count("Traceback (most recent call last)") == 1, output
