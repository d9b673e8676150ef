"""The third example, as its README gives it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import ONE_AT_A_TIME, LaunchIt, as_asked

EXAMPLE = Path(__file__).parents[3] / "examples" / "03_hf_trainer"
WORDS = "--output_dir sums --per_device_train_batch_size 2 --gradient_accumulation_steps 8"


def test_the_readme_gives_the_words_of_the_script_itself() -> None:
    assert WORDS in (EXAMPLE / "train.py").read_text()
    assert WORDS in re.sub(r"\\\n\s*", "", (EXAMPLE / "README.md").read_text())


@pytest.mark.slow
def test_it_is_tuned_and_trained(launched: LaunchIt) -> None:
    size = ("--samples", "64", "--hidden_size", "32", "--num_train_epochs", "1", "--use_cpu")
    knob = "--knob=train_micro_batch_size_per_gpu=[16]"
    flags = ("--autotuning=run", "--num_gpus=1", *ONE_AT_A_TIME, knob)
    run = launched(*flags, str(EXAMPLE / "train.py"), *WORDS.split(), *size)
    assert run.code == 0, run.output
    assert as_asked(run), run.output
    assert (run.folder / "sums" / "model.safetensors").exists()
