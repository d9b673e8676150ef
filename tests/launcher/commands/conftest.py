"""Verbs through the command's entry point."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from .verb import Run, ran


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run(verb, *arguments)``: what the command leaves."""
    return partial(ran, capsys)


@pytest.fixture
def fit(run: Run) -> Run:
    """``fit(*arguments)``."""
    return partial(run, "fit")


@pytest.fixture
def plan(run: Run) -> Run:
    """``plan(*arguments)``."""
    return partial(run, "plan")


@pytest.fixture
def recommend(run: Run) -> Run:
    """``recommend(*arguments)``."""
    return partial(run, "recommend")


@pytest.fixture
def search(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``search(*words)``, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(run, "search")
