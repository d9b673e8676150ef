"""``plan --inference`` and ``fit --inference`` through the command's entry point."""

from __future__ import annotations

from functools import partial

import pytest

from ..commands.verb import Run, ran

SERVING = ("--model", "llama3.1-8b", "--input-len", "2048", "--output-len", "128")
A100 = ("--cluster", "8xA100-SXM-80GB", *SERVING)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(ran, capsys)


@pytest.fixture
def plan(run: Run) -> Run:
    return partial(run, "plan", "--inference")


@pytest.fixture
def fit(run: Run) -> Run:
    return partial(run, "fit", "--inference")
