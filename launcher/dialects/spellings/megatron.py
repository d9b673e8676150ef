"""Arguments of Megatron-LM's training scripts.

Checked against ``megatron/training/arguments.py`` of NVIDIA/Megatron-LM at 000c4ac24f61, and the
fields of ``ModelParallelConfig`` and ``TransformerConfig`` of megatron-core 0.16.1 (PyPI).
"""

from __future__ import annotations

from ..versions import Known

KNOWN = Known(package="megatron-core", oldest=(0, 8), newest=(0, 16))
MICRO_BATCH = "--micro-batch-size"
GLOBAL_BATCH = "--global-batch-size"
DEGREES = {
    "tensor_parallel": "--tensor-model-parallel-size",
    "pipeline_parallel": "--pipeline-model-parallel-size",
    "context_parallel": "--context-parallel-size",
    "expert_parallel": "--expert-model-parallel-size",
}
SEQUENCE_PARALLEL = "--sequence-parallel"
VIRTUAL_STAGES = "--num-virtual-stages-per-pipeline-rank"
VIRTUAL_LAYERS = "--num-layers-per-virtual-pipeline-stage"
LAYERS = "--num-layers"
FIRST_LAYERS = "--decoder-first-pipeline-num-layers"
LAST_LAYERS = "--decoder-last-pipeline-num-layers"
LAYOUT = "--pipeline-model-parallel-layout"
DISTRIBUTED_OPTIMIZER = "--use-distributed-optimizer"
NEED_DISTRIBUTED = ("--overlap-param-gather", "--use-precision-aware-optimizer")
"""Arguments that Megatron-LM refuses without the distributed optimizer."""
REFUSE_DISTRIBUTED = ("--use-torch-fsdp2",)
GRANULARITY = "--recompute-granularity"
METHOD = "--recompute-method"
NUM_LAYERS = "--recompute-num-layers"
RECOMPUTE_ACTIVATIONS = "--recompute-activations"
"""The older word for selective granularity."""
SAVE, SAVE_INTERVAL = "--save", "--save-interval"
EVALUATE_ITERATIONS, EVALUATE_INTERVAL = "--eval-iters", "--eval-interval"
MOST_ITERATIONS = 10
"""Iterations of an evaluation in a soak: none of them needs more memory than another."""
ITERATIONS_DEFAULT = 100
GONE_IN_TRIALS = (
    SAVE,
    SAVE_INTERVAL,
    "--tensorboard-dir",
    "--wandb-project",
    "--wandb-exp-name",
    "--wandb-save-dir",
)
EXIT_INTERVAL = "--exit-interval"
PACKAGES = ("megatron",)
FSDP = "--use-megatron-fsdp"
SHARDING = "--data-parallel-sharding-strategy"
SHARDINGS = {2: "optim_grads", 3: "optim_grads_params"}
OPTIMIZER_OFFLOAD = "--optimizer-cpu-offload"
