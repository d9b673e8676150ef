"""The trainer of a question that names none."""

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.planner import choose_trainer
from autoconf_launch.core import FrozenPart, Precision, WeightFormat, Workload
from autoconf_launch.tuning_spaces import CHECKED, named_model

LLAMA = Workload(model=named_model("llama3-8b"), sequence_length=8192)
LORA = replace(LLAMA, lora_rank=16)


@pytest.mark.parametrize(
    ("workload", "gpu", "name"),
    [
        (LLAMA, "H100-SXM-80GB", "nemo"),
        (LLAMA, "GB200", "nemo"),
        (LLAMA, "A100-SXM-80GB", "megatron"),
        (LLAMA, "V100-SXM-32GB", "megatron"),
        (LLAMA, "RTX-4090-24GB", "huggingface"),
        (LLAMA, "cpu", "native"),
        (LORA, "H100-SXM-80GB", "huggingface"),
        (replace(LLAMA, frozen=frozenset({FrozenPart.MLP})), "GB200", "huggingface"),
        (replace(LLAMA, precision=Precision.FP32), "A100-SXM-80GB", "huggingface"),
        (replace(LLAMA, precision=Precision.FP8), "L40S-48GB", "nemo"),
        (replace(LLAMA, model=named_model("bert-large")), "H100-SXM-80GB", "megatron"),
    ],
)
def test_the_training_and_the_gpus_choose_the_trainer(
    workload: Workload, gpu: str, name: str
) -> None:
    assert choose_trainer(workload, [gpu], CHECKED).name == name


def test_a_choice_says_what_it_was_checked_on() -> None:
    found = choose_trainer(LLAMA, ["H100-SXM-80GB", "A100-SXM-80GB"], CHECKED)
    assert (found.name, found.why) == (
        "megatron",
        "default on Ampere and Hopper, checked on Ampere as megatron-2021 and on Hopper as nemo",
    )
    half = choose_trainer(LLAMA, ["V100-SXM-16GB", "A100-SXM-80GB"], CHECKED)
    assert half.why.endswith(", checked on Ampere as megatron-2021, never on Volta")
    assert choose_trainer(LLAMA, ["H100-SXM-80GB"], CHECKED).why == "default, checked on Hopper"
    ampere = choose_trainer(LLAMA, ["A100-SXM-80GB"], CHECKED).why
    assert ampere == "default on Ampere, checked there as megatron-2021"
    assert choose_trainer(LLAMA, ["L40S-48GB"], CHECKED).why.endswith("never checked there")


def test_how_frozen_weights_are_stored_does_not_change_the_trainer() -> None:
    gpus = ["A100-SXM-80GB"]
    stored = replace(LORA, weight_format=WeightFormat.NF4)
    assert choose_trainer(stored, gpus, CHECKED) == choose_trainer(LORA, gpus, CHECKED)
