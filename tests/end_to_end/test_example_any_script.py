"""The example of a script that knows nothing of us: it trains, and it is tuned as it stands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Place

pytestmark = pytest.mark.usefixtures("one_thread")

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_any_script" / "train.py"
SMALL = ("--pictures", "512")


def right(output: str) -> int:
    found = re.search(r"(\d+) of \d+ right", output)
    assert found, output
    return int(found[1])


def train(*arguments: str) -> int:
    command = (sys.executable, str(EXAMPLE), *SMALL, *arguments)
    return right(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
def test_it_learns_the_same_however_the_batch_is_split() -> None:
    as_given = train("--lr", "0.05")
    split_otherwise = train("--lr", "0.05", "--batch_size", "64", "--grad_accum", "1")
    assert as_given > 300
    assert split_otherwise == pytest.approx(as_given, abs=4)


def test_its_code_is_plain_pytorch() -> None:
    source = EXAMPLE.read_text()
    assert "autoconf" not in source.split('"""', 2)[2]


@pytest.mark.slow
def test_it_is_tuned_with_the_flags_of_its_guide(place: Place) -> None:
    script = place.folder / "train.py"
    shutil.copy(EXAMPLE, script)
    quick = ("--max-parallel-trials=1", "--soak_steps=0", "--tuner-num-trials=4")
    knob = "--knob=--num_workers=[0, 2]"
    words = ("--num_gpus=1", knob, "train.py", *SMALL, "--batch_size", "4", "--grad_accum", "16")
    code, output = place.run("--autotuning=run", *quick, *words)
    assert code == 0, output
    summary = place.summary()
    assert summary["spaces"][-1]["num_experiments"] >= 3
    assert right(output) > 300
