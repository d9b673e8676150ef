from __future__ import annotations

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.dialects import AccelerateDialect

from .sources import render_with, say_of, script

DIALECT = AccelerateDialect()
ACCUMULATES = "from accelerate import Accelerator\na = Accelerator()\na.accumulate(m)"
MANUAL = "from accelerate import Accelerator\na = Accelerator()"


def stage(**environment: str) -> int:
    source = script("--batch_size=2", text=ACCUMULATES, environment=tuple(environment.items()))
    return DIALECT.read(source, world_size=2).baseline.layout.zero_stage


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, 0),
        ({"ACCELERATE_USE_FSDP": "true"}, 3),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": "SHARD_GRAD_OP"}, 2),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": "2"}, 2),
        (
            {
                "ACCELERATE_USE_FSDP": "true",
                "FSDP_VERSION": "2",
                "FSDP_RESHARD_AFTER_FORWARD": "false",
            },
            2,
        ),
        ({"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "1"}, 1),
    ],
)
def test_variables_are_a_stage(environment: dict[str, str], expected: int) -> None:
    assert stage(**environment) == expected


def test_the_stage_of_deepspeed_stays_one_of_deepspeed() -> None:
    given = (("ACCELERATE_USE_DEEPSPEED", "true"), ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))
    source = script("--batch_size=2", text=ACCUMULATES, environment=given)
    made = render_with(DIALECT, source, 2, zero_stage=3)
    assert made.environment == (("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"),)


def test_fsdp_1_is_spoken_where_version_2_is_not_there() -> None:
    source = script("--batch_size=2", text=ACCUMULATES, versions=(("accelerate", "0.34.2"),))
    made = dict(render_with(DIALECT, source, 2, zero_stage=2).environment)
    assert made["FSDP_SHARDING_STRATEGY"] == "SHARD_GRAD_OP"
    assert "FSDP_VERSION" not in made


def test_a_script_that_steps_by_hand_accumulates_by_its_own_argument_alone() -> None:
    with pytest.raises(ConfigError, match="--allow-global-batch-change"):
        DIALECT.read(script("--batch_size=2", text=MANUAL), world_size=1)
    own = script("--batch_size=2", "--gradient_accumulation_steps=4", text=MANUAL)
    made = render_with(DIALECT, own, micro_batch=4, accumulation=2)
    assert made.script_args == ("--batch_size=4", "--gradient_accumulation_steps=2")
    assert made.environment == ()


def test_the_variable_outweighs_the_argument_where_both_are_given() -> None:
    given = (("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"),)
    source = script("--batch_size=2", "--grad_accum=9", text=ACCUMULATES, environment=given)
    assert DIALECT.read(source, world_size=1).baseline.layout.accumulation == 4


def test_degrees_are_read_and_change_the_data_parallel_ranks() -> None:
    given = (
        ("ACCELERATE_USE_PARALLELISM_CONFIG", "true"),
        ("PARALLELISM_CONFIG_TP_SIZE", "2"),
    )
    source = say_of(
        script("--batch_size=2", text=ACCUMULATES, environment=given),
        knobs=(("tensor_parallel", (1, 2)),),
    )
    found = DIALECT.read(source, world_size=4).baseline.layout
    assert (found.tensor_parallel, found.data_parallel) == (2, 2)


def test_a_strategy_without_a_stage_is_refused() -> None:
    with pytest.raises(ConfigError, match="FSDP_SHARDING_STRATEGY is 'OTHER'"):
        stage(ACCELERATE_USE_FSDP="true", FSDP_SHARDING_STRATEGY="OTHER")
