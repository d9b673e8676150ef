"""Rows of the trainers' table."""

from pathlib import Path

import pytest

from autoconf_launch.core import Loss, Optimizer, Precision, States, Workload
from autoconf_launch.tuning_spaces import TRAINERS

LIGHT = Workload(optimizer=Optimizer.from_name("adamw8bit"))


@pytest.mark.parametrize("name", TRAINERS)
def test_each_row_cites_its_source_and_combines_only_stages_that_it_has(name: str) -> None:
    habits = TRAINERS[name]
    stages = dict(habits.abilities.zero)
    assert habits.source
    assert habits.abilities.zero_in_pipelines <= stages.keys()
    assert habits.abilities.zero_beside_tensor <= stages.keys()
    assert {"none", "full"} <= habits.abilities.recompute
    assert Precision.BF16 in habits.abilities.precisions


def test_rows_have_their_own_fields_beside_those_of_another() -> None:
    megatron, nemo = TRAINERS["megatron"], TRAINERS["nemo"]
    assert nemo.abilities.zero == megatron.abilities.zero
    assert (nemo.abilities.adapters, megatron.abilities.adapters) == (True, False)
    software = TRAINERS["torchtune"].software
    assert (software.states, software.loss) == (States.BF16, Loss.CHUNKED)


@pytest.mark.parametrize(
    ("workload", "name", "lacked"),
    [
        (Workload(precision=Precision.FP8), "huggingface", "precision fp8"),
        (Workload(precision=Precision.FP8), "accelerate", None),
        (Workload(lora_rank=8), "megatron", "LoRA"),
        (
            LIGHT,
            "torchtitan",
            "optimizer adamw8bit",
        ),
        (LIGHT, "huggingface", None),
    ],
)
def test_what_a_trainer_lacks_is_named(workload: Workload, name: str, lacked: str | None) -> None:
    assert TRAINERS[name].abilities.first_lack(workload) == lacked


@pytest.mark.parametrize("name", TRAINERS)
def test_the_guide_s_table_is_that_of_the_rows(name: str) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "cost_model.md").read_text(encoding="utf-8")
    (line,) = (line for line in guide.splitlines() if line.startswith(f"| {name} |"))
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    parallel, zero, *_, states, losses, eight_bit, adapters = cells
    has = TRAINERS[name].abilities
    assert set(states.split()) == {one.value for one in has.states}
    assert set(losses.split()) == {one.value for one in has.losses}
    assert set(parallel.split()) - {"-"} == has.parallel
    assert [int(stage) for stage in zero.split()] == [stage for stage, _ in has.zero]
    assert (eight_bit == "yes", adapters == "yes") == (has.eight_bit_states, has.adapters)
