"""Verbs through the command's entry point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.launcher.asked import RecommendCommand
from autoconf_launch.launcher.commands import recommend as command
from autoconf_launch.launcher.estimates import Recommendation

from .verb import Run, ran


@pytest.fixture(scope="session", autouse=True)
def _recommendations_once() -> Iterator[None]:
    """Many tests look at the same answer, as text and as document; it takes a second."""
    answers: dict[str, Recommendation] = {}
    make = command.recommendation

    def recommendation(request: RecommendCommand, cluster: Any) -> Recommendation:
        silent = replace(request, json=False, html=None)
        key = repr((silent, cluster))
        if "Path(" in key:  # the file may change
            return make(request, cluster)
        if key not in answers:
            answers[key] = make(silent, cluster)
        return answers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "recommendation", recommendation)
        yield


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
