"""What every dialect must do; a new one joins by its row in DIALECTS."""

from __future__ import annotations

import dataclasses

import pytest

from autoconf_launch.core import Candidate, RawConfig
from autoconf_launch.launcher.dialects import DIALECTS, Dialect, ScriptSource

SOURCES = {
    "NativeDialect": ScriptSource(
        script_args=("--lr", "0.1", "--config", "c.json"),
        config=RawConfig(
            {
                "train_micro_batch_size_per_gpu": 2,
                "gradient_accumulation_steps": 8,
                "model": {"layers": 3},
                "autotuning": {"enabled": True},
            }
        ),
        config_argument=3,
    )
}
CASES = [pytest.param(d, SOURCES[type(d).__name__], id=type(d).__name__) for d in DIALECTS]
pytestmark = pytest.mark.parametrize(("dialect", "source"), CASES)


def changed(candidate: Candidate) -> Candidate:
    layout = dataclasses.replace(candidate.layout, micro_batch=8, accumulation=2, zero_stage=1)
    return dataclasses.replace(candidate, layout=layout)


def test_it_knows_its_own_scripts(dialect: Dialect, source: ScriptSource) -> None:
    assert dialect.detects(source)


def test_the_baseline_is_what_the_user_gave(dialect: Dialect, source: ScriptSource) -> None:
    layout = dialect.read(source, world_size=2).baseline.layout
    assert (layout.micro_batch, layout.accumulation, layout.data_parallel) == (2, 8, 2)


def test_rendering_the_baseline_changes_nothing_but_the_config_path(
    dialect: Dialect, source: ScriptSource
) -> None:
    baseline = dialect.read(source, world_size=2).baseline
    rendered = dialect.render(baseline, source, "trial.json")
    assert rendered.config == source.config.without(("autotuning",))
    assert rendered.script_args == ("--lr", "0.1", "--config", "trial.json")


def test_a_rendered_candidate_is_read_back_as_itself(
    dialect: Dialect, source: ScriptSource
) -> None:
    candidate = changed(dialect.read(source, world_size=2).baseline)
    rendered = dialect.render(candidate, source, "trial.json")
    again = dataclasses.replace(source, config=rendered.config, script_args=rendered.script_args)
    assert dialect.read(again, world_size=2).baseline == candidate


def test_only_searched_keys_differ(dialect: Dialect, source: ScriptSource) -> None:
    candidate = changed(dialect.read(source, world_size=2).baseline)
    rendered = dialect.render(candidate, source, "trial.json")
    edits = source.config.without(("autotuning",)).diff(rendered.config)
    assert {edit.path[-1] for edit in edits} == {
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "stage",
    }
