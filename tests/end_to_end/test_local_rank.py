"""Scripts that do not take ``--local_rank``: they run, or the error says how they do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import SMALL, Place

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "lab.md"
TUNE = (
    "--autotuning=tune",
    "--num_gpus=1",
    "--max-parallel-trials=1",
    "--soak_steps=0",
    "--end_profile_step=4",
    "--budget=1trials",
)
BEGINNING = """
import argparse
import os
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--config")
args = parser.parse_args()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, batch):
        return self.layer(batch).square().mean()


def build_model():
    return Model()


loader = (torch.ones(engine.samples_per_step, 8) for _ in range(8))
"""
END = "\nprint('ran to its end')\n"
WORDS = ("mine.py", "--config", "config.json")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def write_script(place: Place, beginning: str = BEGINNING) -> None:
    """What the guide prints, completed to a script."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (snippet,) = [block for block in blocks if "runtime.initialize(build_model" in block]
    (place.folder / "mine.py").write_text(f"{beginning}\n{snippet}{END}")
    place.write_config({**SMALL, "gradient_accumulation_steps": 1})


def test_the_guides_own_snippet_is_tuned(place: Place) -> None:
    write_script(place)
    code, output = place.run(*TUNE, *WORDS)
    assert code == 0, output
    command = (place.results / "cmd_optimal.txt").read_text()
    assert command.startswith("autoconf-launch --num_gpus 1 --no_local_rank mine.py --config ")


@pytest.mark.slow
def test_where_a_parser_cannot_be_read_the_error_says_how_to_leave_it_out(place: Place) -> None:
    unread = BEGINNING.replace("argparse.ArgumentParser()", "vars(argparse)['ArgumentParser']()")
    write_script(place, f"{unread}\nlocal_rank = os.environ['LOCAL_RANK']\n")
    for flags, expected in ((TUNE, 3), (("--num_gpus=1",), 2)):
        code, output = place.run(*flags, *WORDS)
        assert code == expected, output
        assert "unrecognized arguments: --local_rank=0" in output
        assert "give --no_local_rank" in output
    code, output = place.run("--num_gpus=1", "--no_local_rank", *WORDS)
    assert (code, "ran to its end" in output) == (0, True), output
