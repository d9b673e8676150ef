"""Verbs through the command's entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.launcher.commands import plan as plan_module
from autoconf_launch.launcher.commands import recommend as recommend_module

from .verb import Run, ran

OUTPUT = {"--json", "--csv", "--html", "--export", "--output", "--row"}
FILES: dict[str, Any] = {"csv": None, "html": None, "export": (), "row": None, "output": None}
"""Parameters of a plan that change none of its answer."""


def plan_silently(request: Any) -> Any:
    training = request.training
    silent = replace(training, json=False, given=training.given - OUTPUT)
    return replace(request, **FILES, training=silent)


def recommend_silently(request: Any) -> Any:
    return replace(request, json=False, html=None)


def once(make: Callable[..., Any], silence: Callable[[Any], Any]) -> Callable[..., Any]:
    """Answer equal requests once; ``silence`` takes off what changes only the output."""
    answers: dict[Any, Any] = {}

    def answer(*asked: Any) -> Any:
        key = (silence(asked[0]), *asked[1:])
        if "Path(" in repr(key):  # the file may change
            return make(*asked)
        if key not in answers:
            answers[key] = make(*key)
        return answers[key]

    return answer


@pytest.fixture(scope="session", autouse=True)
def _answers_once() -> Iterator[None]:
    """Many tests look at the same answer, as text, document and file; it takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, silence in (
            (plan_module, "plan_answer", plan_silently),
            (plan_module, "plan_clusters", plan_silently),
            (recommend_module, "recommendation", recommend_silently),
        ):
            patch.setattr(module, name, once(getattr(module, name), silence))
        yield


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run(verb, *arguments)``: what the command leaves."""
    return partial(ran, capsys)


@pytest.fixture
def fit(run: Run) -> Run:
    return partial(run, "fit")


@pytest.fixture
def plan(run: Run) -> Run:
    return partial(run, "plan")


@pytest.fixture
def recommend(run: Run) -> Run:
    return partial(run, "recommend")


@pytest.fixture
def search(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``search(*words)``, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(run, "search")
