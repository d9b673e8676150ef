"""A script that knows nothing of us: tuned by its own argument, then trained with the winner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Place

SCRIPT = str(Path(__file__).parent / "scripts" / "plain_loop.py")
QUICK = ("--num_gpus=1", "--max-parallel-trials=1", "--soak_steps=0", "--end_profile_step=5")
SIZES = ("--allow-global-batch-change", "--knob=train_micro_batch_size_per_gpu=[4, 16]")


@pytest.mark.slow
def test_a_plain_loop_is_tuned_by_its_own_argument(place: Place) -> None:
    code, output = place.run("--autotuning=run", *QUICK, *SIZES, SCRIPT, "--batch-size", "4")
    assert code == 0, output
    assert "--batch-size is taken for the micro-batch" in output
    summary = json.loads((place.results / "summary.json").read_text())
    assert summary["spaces"][-1]["num_experiments"] >= 2
    assert f"trained with {summary['winner'].rpartition('tmbspg')[2]}" in output
    assert f"{SCRIPT} --batch-size" in (place.results / "cmd_optimal.txt").read_text()


@pytest.mark.slow
def test_a_script_that_ignores_its_argument_is_found_out(place: Place) -> None:
    script = (SCRIPT, "--batch-size", "4", "--ignore")
    code, output = place.run("--autotuning=tune", *QUICK, *SIZES, *script)
    assert code == 0, output
    failure = json.loads((place.results / "z0_gas1_tmbspg16" / "failure.json").read_text())
    assert failure["kind"] == "not_applied"
    assert "micro_batch 4 instead of 16 (asked by --batch-size)" in failure["detail"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((SCRIPT, "--batch-size=4"), "--allow-global-batch-change"),
        (("--knob=--x", SCRIPT), "has no list of values"),
        (("--dialect=acelerate", SCRIPT), "did you mean 'accelerate'"),
        (("--arg=train_micro_batch_size_per_gpu=--nope", SCRIPT), "--nope is to stand for"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    place: Place, words: tuple[str, ...], says: str
) -> None:
    code, output = place.run("--autotuning=tune", "--num_gpus=1", *words)
    assert code == 2
    assert says in output
    assert len(output.splitlines()) == 1
