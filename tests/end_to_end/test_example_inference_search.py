"""The example of an inference search, as its page gives it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("hydra")
pytest.importorskip("transformers")

PAGE = Path(__file__).parents[2] / "examples" / "09_inference_search" / "README.md"


def words_of_the_page() -> list[str]:
    block = PAGE.read_text().split("```")[1]
    words = shlex.split(block.replace("\\\n", " "))
    assert words.pop(0) == "autoconf-launch"
    return [sys.executable, "-m", "autoconf_launch.launcher.cli", *words]


def test_the_example_shows_its_points(tmp_path: Path) -> None:
    command = [*words_of_the_page(), "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "6 of 12 points" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_example_ends_in_a_recommendation(tmp_path: Path) -> None:
    done = subprocess.run(
        words_of_the_page(),
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode in (0, 3), done.stderr  # a slow machine is not within the bound
    final = tmp_path / "results/gpt3/unknown_size_80gb/inference/final_summary/final_output.csv"
    assert len(final.read_text().splitlines()) == 13
