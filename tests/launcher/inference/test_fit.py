from pathlib import Path
from typing import Any

import pytest

from autoconf_launch import ConfigError, fit_inference, plan_inference

from ..commands.verb import Run
from .conftest import SERVING

GOLDEN = Path(__file__).parent / "golden"
ONE: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster": "8xA100-SXM-80GB",
    "input_len": 2048,
    "output_len": 128,
}


def test_the_text_is_as_written(fit: Run) -> None:
    answer = fit(
        "--cluster", "2xL4", *SERVING, "--pp", "2", "--batch", "4", "--usd-per-gpu-hour", "1"
    )
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (GOLDEN / "fit.txt").read_text()


def test_what_does_not_fit_is_no(run: Run) -> None:
    answer = run("fit", "--cluster", "T4", *SERVING, "--inference", "--precision", "fp16")
    assert answer.code == 1
    assert "not even a batch of 1 has room" in answer.out
    assert "it does not fit: a rank needs 16.9 GiB" in answer.err


def test_the_parts_of_a_document_add_up_to_its_peak(fit: Run) -> None:
    found = fit("--cluster", "2xL4", *SERVING, "--tp", "2", "--json").document
    assert sum(found["parts_gib"].values()) == pytest.approx(found["peak_memory_gib"], abs=0.01)
    assert found["verdict"] == "yes"


def test_money_follows_from_the_price_and_the_throughput(fit: Run) -> None:
    words = ("--cluster", "1xL4", *SERVING, "--usd-per-gpu-hour", "3.6", "--json")
    found = fit(*words).document
    assert found["usd_per_million_tokens"] == pytest.approx(1e3 / found["tokens_per_s_per_gpu"])


def test_python_answers_what_the_commands_do_and_as_tables(fit: Run) -> None:
    found = fit_inference(**ONE, batch=8, tp=2)
    planned = plan_inference(**ONE, batch=[8], tp=[2], pp=[1])
    words = ("--cluster", "8xA100-SXM-80GB", *SERVING, "--tp", "2", "--batch", "8", "--json")
    latency_s = fit(*words).document["latency_s"]
    assert found.point.latency_s == planned.plan.best[0].latency_s == latency_s
    assert all("<table>" in answer._repr_html_() for answer in (found, planned))


def test_wrong_keywords_are_named() -> None:
    with pytest.raises(ConfigError, match=r"^tp=3 must divide the 32 attention heads"):
        plan_inference(**ONE, tp=[3])
    with pytest.raises(ConfigError, match=r"^batch is 0; it must be a whole number"):
        fit_inference(**ONE, batch=0)
    with pytest.raises(ConfigError, match=r"^plan_inference has no keyword bath; did you mean"):
        plan_inference(**ONE, bath=[8])  # type: ignore[call-arg]
