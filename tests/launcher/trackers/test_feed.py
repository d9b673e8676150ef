from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import BlockSpec, Candidate, FailureKind, Grade, Layout, ModelSpec
from autoconf_launch.launcher.events import Finished, ModelProfiled, Note, TrialFinished
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.trackers import Feed, feed_of
from autoconf_launch.launcher.trackers.base import (
    Phase,
    TrackedBest,
    TrackedChoice,
    TrackedTrial,
    metrics_of,
    size_name,
)

from ..report.fixed import RECORDS, events, failure_of, record, steps_of, trial

SPEC = ModelSpec(grade=Grade.MEASURED, blocks=(BlockSpec(name="all", parameters=126_000_000),))
FINISHED = TrialFinished(record=RECORDS[1], best=RECORDS[1], elapsed_s=3.5)


def tell(feed: Feed, finished: TrialFinished) -> TrackedTrial:
    entry = feed.take(finished)[0]
    assert isinstance(entry, TrackedTrial)
    return entry


NO_BLOCKS = replace(SPEC, blocks=())


@pytest.mark.parametrize(
    ("given", "spec", "study"),
    [
        (("gpt3", "5b"), SPEC, "gpt3_5b"),
        (("my model/2", "5b"), None, "my_model_2_5b"),
        (("train",), SPEC, "train_126m"),
        (("train",), None, "train"),
        (("train",), NO_BLOCKS, "train"),
    ],
)
def test_a_run_is_named_by_model_given_or_profiled_size_and_parameters(
    given: tuple[str, ...], spec: ModelSpec | None, study: str
) -> None:
    feed = Feed(*given)
    feed.take(ModelProfiled(spec=spec, wall_s=1.0))
    assert feed.study == study
    assert tell(feed, FINISHED).run == f"{study}_z0_gas2_tmbspg8"


@pytest.mark.parametrize(
    ("script", "kind", "name"),
    [
        ("examples/train.py", "script", "train"),
        ("package.train", "module", "train"),
        ("./run.sh", "program", "run"),
    ],
)
def test_a_tune_is_named_by_its_script(script: str, kind: Any, name: str) -> None:
    assert feed_of(LaunchRequest(script=script, kind=kind)).study == name


def test_a_run_whose_trial_has_model_and_size_in_its_name_has_them_once() -> None:
    name = "gpt3_5b_16nodes_tp_2_pp_1_mbs_4"
    searched = replace(RECORDS[1], trial=replace(RECORDS[1].trial, name=name))
    again = replace(searched, trial=replace(searched.trial, attempt=1, final=True))
    feed = Feed("gpt3", "5b")
    assert tell(feed, replace(FINISHED, record=searched)).run == name
    assert tell(feed, replace(FINISHED, record=again)).run == f"{name}_round1"


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (5e9, "5b"),
        (126e6, "126m"),
        (1.2345e9, "1.23b"),
        (999_999_999, "1b"),
        (175e9, "175b"),
        (1088, "1.09k"),
        (12, "12"),
    ],
)
def test_sizes_are_written_as_names_of_models_have_them(parameters: float, name: str) -> None:
    assert size_name(parameters) == name


@given(st.integers(1, 10**13))
def test_a_size_is_short_and_within_a_percent(parameters: int) -> None:
    name = size_name(parameters)
    unit = {"b": 1e9, "m": 1e6, "k": 1e3}.get(name[-1], 1.0)
    number = float(name.rstrip("bmk"))
    assert number * unit == pytest.approx(parameters, rel=0.01)


def test_every_knob_is_a_parameter() -> None:
    candidate = Candidate(
        layout=Layout(zero_stage=2, pipeline_split=(3, 5)), extras=(("overlap_comm", True),)
    )
    done = record(replace(trial(1, 2, 1), candidate=candidate), steps_of(0.5))
    entry = tell(Feed("m"), replace(FINISHED, record=done))
    parameters = dict(entry.parameters)
    assert parameters["zero_stage"] == 2
    assert parameters["recompute"] == "none"
    assert parameters["pipeline_split"] == "3.5"
    assert parameters["overlap_comm"] is True
    assert parameters["tuning_space"] == "z2"


def test_a_measured_trial_has_what_was_predicted_and_measured() -> None:
    assert dict(metrics_of(RECORDS[1])) == pytest.approx(
        {
            "predicted_step_s": 0.25,
            "predicted_peak_bytes": 200_000_000,
            "step_s": 0.16,
            "throughput_samples_per_s": 200.0,
            "peak_bytes": 250_000_000,
            "wall_s": 3.5,
        }
    )
    odd = record(trial(1, 0, 1), replace(steps_of(0.5), flops_per_step=math.inf))
    assert "flops_per_gpu_per_s" not in dict(metrics_of(odd)), "what is no number is left out"


def test_a_failed_trial_has_its_kind_and_no_line_of_a_log() -> None:
    crashed = record(trial(1, 0, 1), failure_of(FailureKind.CRASHED, "token=secret"))
    entry = tell(Feed("m"), replace(FINISHED, record=crashed))
    assert entry.failure == "crashed"
    assert "secret" not in repr(entry)
    assert "Traceback" not in repr(entry)


def test_the_best_so_far_follows_each_searched_trial() -> None:
    feed = Feed("m")
    entries = [entry for event in events() for entry in feed.take(event)]
    best = [entry for entry in entries if isinstance(entry, TrackedBest)]
    assert [one.finished for one in best] == [1, 2, 3, 4, 5]
    assert best[-1].run == "m_z1_gas2_tmbspg8"


@pytest.mark.parametrize(
    ("again", "run", "phase"),
    [
        ({"attempt": 2}, "m_z0_gas2_tmbspg8_again", Phase.SEARCH),
        ({"attempt": 3, "final": True}, "m_z0_gas2_tmbspg8_round3", Phase.ROUND),
        ({"name": "z0_gas2_tmbspg8_again", "again": 4}, "m_z0_gas2_tmbspg8_again1", Phase.AGAIN),
        ({"soak_steps": 50}, "m_z0_gas2_tmbspg8", Phase.SOAK),
    ],
)
def test_a_launch_that_repeats_a_trial_is_a_run_of_its_own(
    again: dict[str, Any], run: str, phase: Phase
) -> None:
    first = tell(Feed("m"), FINISHED)
    repeated = replace(RECORDS[1], trial=replace(RECORDS[1].trial, **again))
    entry = tell(Feed("m"), replace(FINISHED, record=repeated))
    assert (entry.run, entry.phase) == (run, phase)
    assert entry.key != first.key
    entries = Feed("m").take(replace(FINISHED, record=repeated))
    assert len(entries) == 1 or phase is Phase.SEARCH, "only the search has a best so far"


def test_the_winner_is_the_choice_and_other_events_are_not_told() -> None:
    feed = Feed("m")
    (entry,) = feed.take(Finished(text="", winner=RECORDS[3]))
    assert isinstance(entry, TrackedChoice)
    assert entry.run == "m_z1_gas2_tmbspg8"
    assert dict(entry.metrics)["step_s"] == pytest.approx(0.064)
    assert feed.take(Note(text="a note")) == feed.take(Finished(text="no winner")) == ()
