from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.core import ConfigError, Recompute
from autoconf_launch.launcher.dialects import TorchtitanDialect
from autoconf_launch.launcher.script import NamedFile, ScriptSource
from autoconf_launch.launcher.spelling import TrialNeeds

from .sources import allowing, layout, render_with, say_of, script, strategy_of

DATA = Path(__file__).parents[2] / "data" / "dialects"
DIALECT = TorchtitanDialect()
NEEDS = TrialNeeds(folder="trial", steps=7)
FLAG = "--job.config_file"


def titan(text: str, *arguments: str) -> ScriptSource:
    file = NamedFile(position=1, flag=FLAG, path="llama3.toml", text=text)
    return script(FLAG, "llama3.toml", *arguments, files=(file,))


def golden(name: str) -> str:
    return (DATA / name).read_text()


def test_a_trial_is_as_the_golden_file_says() -> None:
    source = titan(golden("torchtitan.toml"))
    changes = {"micro_batch": 4, "accumulation": 2, "zero_stage": 2, "recompute": Recompute.FULL}
    made = render_with(DIALECT, source, 4, **changes)
    trial = DIALECT.in_trial(made, source, NEEDS)
    assert trial.script_args == (FLAG, "trial/torchtitan.toml")
    assert trial.files[0].text == golden("torchtitan_trial.toml")


def test_older_names_are_kept_where_the_file_has_them() -> None:
    text = "[training]\nbatch_size = 8\n[experimental]\npipeline_parallel_degree = 1\n"
    source = titan(text)
    user = DIALECT.read(allowing(source), world_size=4)
    made = DIALECT.render(layout(user, micro_batch=4, zero_stage=0), source, "c")
    assert made.files[0].text == (
        "[training]\nbatch_size = 4\ndata_parallel_shard_degree = 1\n"
        "data_parallel_replicate_degree = 4\n[experimental]\npipeline_parallel_degree = 1\n"
    )


def test_without_accumulation_in_that_version_consent_is_needed() -> None:
    source = say_of(titan("[training]\nbatch_size = 8\n"), knobs=(("zero_stage", (3,)),))
    source = replace(source, text="import torchtitan")
    with pytest.raises(ConfigError, match="--allow-global-batch-change"):
        DIALECT.read(source, world_size=2)


def test_the_command_line_weighs_more_than_the_file() -> None:
    source = titan("[training]\nlocal_batch_size = 8\n", "--training.local_batch_size=2")
    made = render_with(DIALECT, source, 2, micro_batch=4)
    assert made.script_args[-1] == "--training.local_batch_size=4"
    assert "local_batch_size = 8" in made.files[0].text


def test_without_a_file_everything_is_on_the_command_line() -> None:
    words = ("--module", "llama3", "--config", "llama3_8b", "--training.local_batch_size", "2")
    source = script(*words, versions=(("torchtitan", "0.3.0"),))
    made = render_with(DIALECT, source, 4, micro_batch=1, accumulation=2, zero_stage=0)
    assert made.script_args == (
        *words[:-1],
        "1",
        "--training.global_batch_size",
        "8",
        "--parallelism.data_parallel_shard_degree",
        "1",
        "--parallelism.data_parallel_replicate_degree",
        "4",
    )


def test_a_batch_that_a_registry_decides_is_told_by_the_profile_run_or_must_be_given() -> None:
    source = script("--module", "llama3", "--config", "llama3_8b")
    told_by_run = replace(source, applied=strategy_of(micro_batch=6))
    assert DIALECT.read(told_by_run, world_size=1).baseline.layout.micro_batch == 6
    unseen = replace(source, applied=strategy_of(micro_batch=0))
    with pytest.raises(ConfigError, match="local_batch_size, the micro-batch, is not among"):
        DIALECT.read(unseen, world_size=1)


def test_degrees_are_read_and_listed() -> None:
    source = say_of(
        titan("[parallelism]\ntensor_parallel_degree = 2\n"),
        knobs=(("--parallelism.tensor_parallel_degree", (1, 2, 4)),),
    )
    user = DIALECT.read(source, world_size=4)
    assert (user.baseline.layout.tensor_parallel, user.baseline.layout.data_parallel) == (2, 2)
    (degrees,) = (choice for choice in user.choices if choice.knob == "tensor_parallel")
    assert degrees.values == (1, 2, 4)


def test_pipeline_stages_need_a_stated_global_batch() -> None:
    source = titan("[parallelism]\npipeline_parallel_degree = 2\n")
    with pytest.raises(ConfigError, match=r"training.global_batch_size is not set"):
        DIALECT.read(source, world_size=2)


def test_an_activation_mode_that_is_not_known_is_refused() -> None:
    source = titan('[activation_checkpoint]\nmode = "memory_budget"\n')
    with pytest.raises(ConfigError, match=r"activation_checkpoint\.mode is 'memory_budget'"):
        DIALECT.read(source, world_size=1)


def test_its_program_is_known_by_its_name() -> None:
    program = replace(script(), script="torchtitan.train")
    assert DIALECT.detects(program)
