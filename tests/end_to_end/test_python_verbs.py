"""The verbs from Python: real answers and a real tune, as the command gives them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoconf_launch import fit, plan, tune
from autoconf_launch.launcher.events import Event, Finished

from .conftest import SCRIPT, SMALL, Place

TRAINING: dict[str, Any] = {
    "model": "gpt2-xl",
    "cluster": "8xA100-SXM-80GB",
    "seq": 1024,
    "global_batch": 64,
}
FLAGS = ("--model=gpt2-xl", "--cluster=8xA100-SXM-80GB", "--seq=1024", "--global-batch=64")


def test_tune_finds_a_configuration_and_tells_its_events(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("AUTOCONF_TEST_MARK", place.mark)
    place.write_config({**SMALL, "autotuning": {"enabled": True, "tuner_type": "gridsearch"}})
    heard: list[Event] = []
    answer = tune(
        str(SCRIPT),
        ("--config", "config.json"),
        heard.append,
        processes=1,
        budget="2trials",
        max_parallel_trials=1,
        soak_steps=0,
    )
    best = json.loads((place.results / "ds_config_optimal.json").read_text())
    layout = answer.winner.trial.candidate.layout
    assert answer.winner.measurement is not None
    assert best["train_micro_batch_size_per_gpu"] == layout.micro_batch
    assert sum(isinstance(event, Finished) for event in heard) == 1
    assert "cmd_optimal.txt" in {path.name for path in place.results.iterdir()}


def test_fit_has_the_numbers_of_the_command(place: Place) -> None:
    code, output = place.here("fit", *FLAGS, "--pp=2", "--zero=1", "--micro-batch=4", "--json")
    answer = fit(**TRAINING, pp=2, zero=1, micro_batch=4)
    said = json.loads(output)
    assert code == 0
    assert said["verdict"] == answer.verdict.value
    assert said["step_time_s"] == answer.step_s


def test_plan_has_the_order_of_the_command(place: Place) -> None:
    code, output = place.here("plan", *FLAGS, "--top=3", "--json")
    answer = plan(**TRAINING, top=3)
    times = [one["step_time_s"] for one in json.loads(output)["best"]]
    assert code == 0
    assert times == [one.step_s for one in answer.plan.best]
