"""Scripts that get ``--local_rank``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import SMALL, Place

pytestmark = pytest.mark.usefixtures("one_thread")

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "lab.md"
TUNE = (
    "--autotuning=tune",
    "--num_gpus=1",
    "--max-parallel-trials=1",
    "--soak_steps=0",
    "--effort=quick",
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


def write_script(place: Place, beginning: str = BEGINNING) -> None:
    """The guide's snippet, completed to a script."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (snippet,) = [block for block in blocks if "runtime.initialize(build_model" in block]
    (place.folder / "mine.py").write_text(f"{beginning}\n{snippet}{END}")
    place.write_config({**SMALL, "gradient_accumulation_steps": 1})


def test_the_guides_own_snippet_is_tuned(place: Place) -> None:
    write_script(place)
    code, output = place.here(*TUNE, *WORDS)
    assert code == 0, output
    command = (place.results / "cmd_optimal.txt").read_text()
    assert command.startswith("autoconf-launch --num_gpus 1 mine.py --config ")


def test_a_script_that_reads_its_words_by_itself_gets_those_that_were_typed(place: Place) -> None:
    (place.folder / "mine.py").write_text("import sys\nprint('words', sys.argv[1:])\n")
    assert place.here("--num_gpus=1", "mine.py", "3", "8") == (0, "words ['3', '8']\n")


@pytest.mark.parametrize("flag", ["--local_rank", "--local-rank"])
def test_a_script_that_declares_the_argument_gets_it_as_it_is_spelled(
    place: Place, flag: str
) -> None:
    declares = f"import argparse\np = argparse.ArgumentParser()\np.add_argument('{flag}')\n"
    (place.folder / "arguments.py").write_text(declares)
    script = "import arguments\nprint(arguments.p.parse_known_args())\n"
    (place.folder / "mine.py").write_text(script)
    code, output = place.here("--num_gpus=1", "mine.py", "7")
    assert code == 0, output
    assert "local_rank='0'" in output
