"""Tests on one GPU, or on the GPU that computes nothing (``tests/null_gpu``).

They are run by path, on machines that have only pytest and the package with its dependencies.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).parent / "scripts"
FOLDER = Path(__file__).parent
SHORT = ("--num_gpus=1", "--no-history", "--effort=quick", "--budget=2trials", "--soak-steps=0")
TUNE_S = 180
"""Deadline of one tune; it takes seconds, unless the machine is busy."""


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and skip them without a GPU."""
    skip = pytest.mark.skip(reason="torch sees no GPU")
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def _no_earlier_tune(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the step times that a tune remembers in the test's folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "user"))


@dataclass(frozen=True)
class Tune:
    """What a tune printed and recorded.

    Attributes:
        code: exit code.
        text: standard output and standard error.
        outcomes: the journal's records with a measurement or a failure, in order.
    """

    code: int
    text: str
    outcomes: tuple[dict[str, Any], ...]

    def failures(self) -> list[str]:
        """Kinds of the failures, one for each launch that failed."""
        return [one["failure"]["kind"] for one in self.outcomes if one.get("failure")]


@pytest.fixture
def tune(tmp_path: Path) -> Callable[..., Tune]:
    """Tunes a script of ``scripts/`` on one GPU, in the test's folder."""

    def run(script: str, *arguments: str, flags: tuple[str, ...] = ()) -> Tune:
        words = ("tune", *SHORT, *flags, str(SCRIPTS / script), *arguments)
        done = subprocess.run(
            (sys.executable, "-m", "autoconf_launch", *words),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TUNE_S,
            check=False,
        )
        journal = tmp_path / "autotuning_results" / "journal.jsonl"
        lines = journal.read_text().splitlines() if journal.exists() else []
        records = (json.loads(line) for line in lines)
        ended = tuple(one for one in records if one.get("failure") or one.get("measurement"))
        return Tune(done.returncode, done.stdout + done.stderr, ended)

    return run
