from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.autotuner.cost import computes_in
from autoconf_launch.autotuner.planner import trainer_rules
from autoconf_launch.core import (
    Framework,
    Layout,
    Offload,
    Optimizer,
    Precision,
    Recompute,
    Software,
    Workload,
)
from autoconf_launch.launcher.estimates import (
    PlanRequest,
    TrainingRequest,
    machine_of,
    plan_answer,
    plan_only_rule,
    with_trainer,
)
from autoconf_launch.launcher.estimates.trainers import apart_rules
from autoconf_launch.tuning_spaces import TRAINERS, named_model, parse_cluster

from ...autotuner.builders import layouts

GPT2 = Workload(model=named_model("gpt2"), sequence_length=1024)
LLAMA = replace(GPT2, model=named_model("llama3.1-8b"))
MIXTRAL = replace(GPT2, model=named_model("mixtral-8x7b"))


SHARDED = {"data_parallel": 8, "zero_stage": 3, "micro_batch": 2, "accumulation": 4}
SPLIT = {"data_parallel": 4, "tensor_parallel": 2, "sequence_parallel": True}
FULL = {"recompute": Recompute.FULL}
VIRTUAL = {"pipeline_parallel": 2, "virtual_pipeline": 2, "accumulation": 2}


@pytest.mark.parametrize(
    ("workload", "layers", "layout", "name"),
    [
        (GPT2, -1, {**FULL, **SHARDED}, None),
        (LLAMA, -1, SPLIT, None),
        (GPT2, -1, SPLIT, "runtime_tensor"),
        (LLAMA, -1, {"tensor_parallel": 16}, "runtime_tensor"),
        (LLAMA, -1, {"offload": Offload.OPTIMIZER}, "runtime_offload"),
        (MIXTRAL, -1, {"pipeline_parallel": 4, "accumulation": 3}, "stage_micro_batches"),
        (MIXTRAL, -1, {"data_parallel": 2, "expert_parallel": 4}, "expert_ranks"),
        (MIXTRAL, -1, {**VIRTUAL, "virtual_pipeline": 17}, "runtime_virtual"),
        (LLAMA, 2, FULL, None),
        (LLAMA, 2, {**FULL, **VIRTUAL}, "runtime_layers"),
        (replace(LLAMA, precision=Precision.FP8), -1, {}, "runtime_training"),
        (replace(LLAMA, optimizer=Optimizer.from_name("muon")), -1, {}, "runtime_training"),
        (replace(LLAMA, lora_rank=8), -1, {}, "runtime_training"),
    ],
)
def test_what_our_runtime_does_not_train_is_planned_only_by_a_rule(
    workload: Workload, layers: int, layout: dict[str, Any], name: str | None
) -> None:
    assert plan_only_rule(Layout(**layout), layers, workload) == name


DISTINCT = [
    *{
        repr(one.abilities): name
        for name, one in TRAINERS.items()
        if Precision.FP32 in one.abilities.precisions
    }.values()
]
"""A trainer for each set of abilities, of those with fp32."""


def names_apart(workload: Workload, *given: str) -> set[str]:
    """Rules by which layouts of a training stand apart."""
    training = TrainingRequest(
        workload=workload,
        cluster=parse_cluster("8xH100"),
        limit_bytes=80 * 2**30,
        given=frozenset(given),
    )
    return {rule.name for rule in apart_rules(PlanRequest(training=training))}


def test_a_training_of_another_trainer_is_not_held_to_our_rules() -> None:
    ours, theirs = names_apart(LLAMA), {"runtime_offload", "runtime_activations"}
    assert ours > theirs
    assert names_apart(replace(LLAMA, lora_rank=16)) == theirs
    megatron = replace(LLAMA, software=Software(framework=Framework.MEGATRON))
    assert names_apart(megatron, "--trainer") == theirs
    assert names_apart(megatron) == ours
    native = replace(LLAMA, software=Software(framework=Framework.FSDP))
    assert names_apart(native, "--trainer") == ours


@pytest.mark.parametrize("gpu", ["V100-SXM-16GB", "A100-SXM-40GB", "H100-SXM-80GB", "RTX-3090"])
@pytest.mark.parametrize("name", DISTINCT)
def test_only_what_gpu_and_trainer_have_is_offered(gpu: str, name: str) -> None:
    cluster = parse_cluster(f"1x{gpu}")
    workload = replace(GPT2, precision=Precision.FP32, global_batch=8)
    if not gpu.startswith("V100"):
        workload = replace(LLAMA, precision=Precision.FP32, global_batch=8)
    training = TrainingRequest(
        workload=workload, cluster=cluster, limit_bytes=cluster.least_memory_bytes
    )
    (training,) = with_trainer([training], name)
    answer = plan_answer(PlanRequest(training=training, top=1))
    accelerator = machine_of(cluster).accelerator
    for gain in answer.gains:
        assert gain.precision in TRAINERS[name].abilities.precisions
        assert computes_in(accelerator, gain.precision)
        assert gain.precision is not Precision.TF32 or accelerator.tf32_flops_per_s
    for change in answer.changes:
        offered = change.request.training
        assert TRAINERS[offered.trainer.name].abilities.first_lack(offered.workload) is None
        assert computes_in(accelerator, offered.workload.precision)
        rules = trainer_rules(TRAINERS[offered.trainer.name].abilities)
        columns = layouts(change.plan.best[0].layout)
        kept = [rule.keep(columns, offered.workload.architecture, 1024) for rule in rules]
        assert all(one.all() for one in kept)
