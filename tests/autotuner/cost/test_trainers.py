from dataclasses import replace

import pytest

from autoconf_launch.autotuner.cost import kernel_traits
from autoconf_launch.autotuner.cost.software import is_compiled, is_tensor_async, waits_for_routing
from autoconf_launch.core import ConfigError, Framework, Precision, Workload
from autoconf_launch.tuning_spaces import TRAINERS, named_model, trainer

GPT = Workload(model=named_model("gpt2"), sequence_length=7)


def test_habits_replace_what_a_workload_says() -> None:
    software = trainer("megatron-2021").apply_to(GPT).software
    habits = (software.framework, software.flash_attention, software.dropout)
    assert habits == (Framework.MEGATRON, False, True)
    software = trainer("nemo").apply_to(GPT).software
    assert software.transformer_engine
    assert is_tensor_async(software)
    assert is_compiled(software)
    with pytest.raises(ConfigError, match="'megatron'"):
        trainer("megatrom")
    traits = {kind: kernel_traits(replace(GPT, precision=kind)) for kind in Precision}
    assert traits[Precision.FP16] == traits[Precision.BF16]
    assert len(set(traits.values())) == len(Precision) - 1


@pytest.mark.parametrize("name", TRAINERS)
def test_habits_leave_the_sequence_alone(name: str) -> None:
    assert TRAINERS[name].apply_to(GPT).sequence_length == 7


@pytest.mark.parametrize(
    ("name", "precision", "waits"),
    [
        ("nemo", Precision.MXFP8, False),
        ("nemo", Precision.BF16, True),
        ("nemo-2025", Precision.MXFP8, True),
    ],
)
def test_a_recorded_step_does_not_wait_for_the_counts_of_experts(
    name: str, precision: Precision, waits: bool
) -> None:
    workload = trainer(name).apply_to(replace(GPT, precision=precision))
    assert waits_for_routing(workload) is waits
