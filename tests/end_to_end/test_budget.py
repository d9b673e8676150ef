"""A budget of time holds for the whole command, whatever a step costs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .conftest import Place

pytestmark = pytest.mark.usefixtures("one_thread")

SCRIPT = str(Path(__file__).parent / "scripts" / "growing.py")
CONSENT = "--allow-global-batch-change"
HANGS = """
import argparse, time, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
arguments = parser.parse_args()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    model(torch.randn(arguments.batch_size, 8)).sum().backward()
    time.sleep(1000)
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.undisturbed
def test_a_budget_ends_the_whole_command_with_its_profile_run_within_a_tenth(
    place: Place,
) -> None:
    flags = ("--autotuning=tune", "--num_gpus=1", "--no-history", CONSENT, "--budget=40s")
    began_s = time.monotonic()
    code, output = place.run(*flags, SCRIPT, "--batch_size=4")
    whole_s = time.monotonic() - began_s
    assert code == 0, output
    assert whole_s <= 44.0 + 1.0, output  # 1 s: Python's own start and end
    assert "the budget of 40 s has room for" in output
    summary = place.summary()
    parts = summary["duration_parts"]
    assert sum(parts.values()) <= whole_s
    assert summary["duration_s"] == pytest.approx(sum(parts.values()), abs=2.0)
    assert "This command took " in output


@pytest.mark.slow
def test_a_budget_ends_a_profile_run_that_never_makes_its_step(place: Place) -> None:
    script = place.folder / "hang.py"
    script.write_text(HANGS)
    flags = ("--autotuning=tune", "--num_gpus=1", CONSENT, "--budget=6s")
    began_s = time.monotonic()
    code, output = place.run(*flags, str(script), "--batch_size=4")
    assert code == 3, output
    assert "The profile run did not end within the budget of 6 s, so nothing was" in output
    assert "--budget 30s" in output
    assert time.monotonic() - began_s < 20.0


@pytest.mark.slow
def test_another_batch_is_chosen_for_a_gain_with_advice_on_the_learning_rate(place: Place) -> None:
    flags = ("--autotuning=tune", "--num_gpus=1", "--max-parallel-trials=1", CONSENT)
    knob = "--knob=train_micro_batch_size_per_gpu=[4, 64]"
    words = ("--step-s=0.05", "--sample-s=0", "--samples=200", "--epochs=100", "--evaluation-s=0")
    code, output = place.run(*flags, knob, SCRIPT, "--batch_size=4", *words)
    assert code == 0, output
    assert "The global batch changes from 4 to 64: unless the script scales" in output
    assert "multiply it by 16 (linear, for SGD)." in output


@pytest.mark.slow
def test_a_batch_that_gains_nothing_is_not_changed(place: Place) -> None:
    flags = ("--autotuning=tune", "--num_gpus=1", "--max-parallel-trials=1", CONSENT)
    knob = "--knob=train_micro_batch_size_per_gpu=[4, 16]"
    words = ("--sample-s=0.03", "--evaluation-s=0")
    code, output = place.run(*flags, knob, SCRIPT, "--batch_size=4", *words)
    assert code == 0, output
    summary = place.summary()
    assert summary["winner"] == "z0_gas1_tmbspg4", output
    assert "learning rate" not in output
