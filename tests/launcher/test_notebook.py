"""Answers from Python, as a notebook shows them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import ConfigError, fit, plan, recommend
from autoconf_launch.launcher.questions import TuneAnswer
from autoconf_launch.launcher.results import read_results

from .report.fixed import finish, write_folder

TRAINING: dict[str, Any] = {
    "model": "gpt2-xl",
    "cluster": "8xA100-SXM-80GB",
    "seq": 1024,
    "global_batch": 64,
}


@pytest.fixture
def tuned(tmp_path: Path) -> TuneAnswer:
    """The answer of a tune whose summary has markup in it."""
    folder = write_folder(tmp_path / "results")
    finish(folder)
    winner = read_results(folder).summary().decision.winner
    assert winner is not None
    return TuneAnswer(winner=winner, text="Best: <b>\n\n| a |\n|---|\n| 1 |", folder=folder)


def test_answers_are_tables() -> None:
    answers = (
        fit(**TRAINING, zero=1),
        plan(**TRAINING, top=3),
        plan(cluster=["8xA100-SXM-80GB", "8xH100"], model="gpt2-xl", seq=1024, global_batch=64),
        recommend(family="gpt3", gpus=160, tflops_per_gpu=140, max_days=7, tokens_b=300),
    )
    for answer in answers:
        assert "<table>" in answer._repr_html_()


def test_a_tune_is_its_summary_escaped(tuned: TuneAnswer) -> None:
    text = tuned._repr_html_()
    assert "Best: &lt;b&gt;" in text
    assert ">1</td>" in text


def test_a_tune_is_written_as_a_page(tuned: TuneAnswer, tmp_path: Path) -> None:
    tuned.write_html(tmp_path / "page.html")
    assert "Throughput of each launch" in (tmp_path / "page.html").read_text()


def test_a_printed_answer_is_its_text(tuned: TuneAnswer) -> None:
    assert str(tuned) == tuned.text
    answer = plan(model="llama3-8b", cluster="8xH100", seq=8192, global_batch=64)
    assert str(answer).startswith("llama3-8b: 8.03 B parameters")


def test_without_the_extra_a_page_is_one_sentence(
    tuned: TuneAnswer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ConfigError) as caught:
        tuned.write_html(tmp_path / "page.html")
    assert str(caught.value) == (
        "HTML pages need plotly, which is not installed: pip install 'autoconf-launch[html]'."
    )
    assert not (tmp_path / "page.html").exists()
