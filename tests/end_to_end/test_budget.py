"""A budget of time holds for the whole tune after the profile run, whatever a step costs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from .conftest import Place

SCRIPT = str(Path(__file__).parent / "scripts" / "growing.py")
CONSENT = "--allow-global-batch-change"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model on several threads takes long where other work has the cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.slow
@pytest.mark.undisturbed
@pytest.mark.parametrize("budget_s", [30, 60])
def test_a_budget_ends_the_whole_tune_within_a_tenth(place: Place, budget_s: int) -> None:
    flags = ("--autotuning=tune", "--num_gpus=1", CONSENT, f"--budget={budget_s}s")
    began_s = time.monotonic()
    code, output = place.run(*flags, SCRIPT, "--batch_size=4")
    whole_s = time.monotonic() - began_s
    assert code == 0, output
    profile_s = float(output.partition("profile (")[2].partition(" s)")[0])
    assert whole_s - profile_s <= 1.1 * budget_s + 3.0, output  # 3 s: the launcher's own start
    summary = json.loads((place.results / "summary.json").read_text())
    assert summary["duration_s"] <= 1.1 * budget_s, output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scaling", "advice"),
    [
        ((), ": multiply the learning rate by 16 (linear, for SGD)."),
        (("--scale-lr",), "; the script multiplies its learning rate by 16 itself."),
    ],
)
def test_another_batch_is_chosen_for_a_gain_and_says_what_becomes_of_the_training(
    place: Place, scaling: tuple[str, ...], advice: str
) -> None:
    flags = ("--autotuning=tune", "--num_gpus=1", "--max-parallel-trials=1", CONSENT)
    knob = "--knob=train_micro_batch_size_per_gpu=[4, 64]"
    words = ("--step-s=0.05", "--sample-s=0", "--samples=200", "--epochs=100", "--evaluation-s=0")
    code, output = place.run(*flags, knob, SCRIPT, "--batch_size=4", *words, *scaling)
    assert code == 0, output
    assert "At a global batch of 64 an epoch has only 4 optimizer steps." in output
    assert f"The global batch changes from 4 to 64{advice}" in output


@pytest.mark.slow
def test_a_batch_that_gains_nothing_is_not_changed(place: Place) -> None:
    flags = ("--autotuning=tune", "--num_gpus=1", "--max-parallel-trials=1", CONSENT)
    knob = "--knob=train_micro_batch_size_per_gpu=[4, 16]"
    words = ("--sample-s=0.03", "--evaluation-s=0")
    code, output = place.run(*flags, knob, SCRIPT, "--batch_size=4", *words)
    assert code == 0, output
    summary = json.loads((place.results / "summary.json").read_text())
    assert summary["winner"] == "z0_gas1_tmbspg4", output
    assert "learning rate" not in output
