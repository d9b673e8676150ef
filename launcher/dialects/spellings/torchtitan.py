"""Options of torchtitan, by version.

Checked against ``config_manager.py`` of torchtitan 0.1.0, ``config/job_config.py`` of 0.2.0 and
0.2.2, ``config/configs.py`` of 0.3.0 (PyPI); older names against ``train_configs/`` of
pytorch/torchtitan at ed24d730cb3e. Up to 0.2 they stand in a TOML file or behind ``--`` on the
command line, which weighs more; from 0.3 on there is no file.
"""

from __future__ import annotations

from ..versions import Known

KNOWN = Known(package="torchtitan", oldest=(0, 1), newest=(0, 3))
FILE_FLAGS = ("--job.config_file", "--job.config-file")
WITHOUT_FILE = (0, 3)
SCRIPT = "torchtitan.train"
MICRO_BATCH = "training.local_batch_size"
GLOBAL_BATCH = "training.global_batch_size"
PIPELINE_MICRO_BATCH = "parallelism.pipeline_parallel_microbatch_size"
DEGREES = {
    "tensor_parallel": "parallelism.tensor_parallel_degree",
    "pipeline_parallel": "parallelism.pipeline_parallel_degree",
    "context_parallel": "parallelism.context_parallel_degree",
    "expert_parallel": "parallelism.expert_parallel_degree",
}
EXPERT_SINCE = (0, 2)
REPLICATE = "parallelism.data_parallel_replicate_degree"
SHARD = "parallelism.data_parallel_shard_degree"
RESHARD = "parallelism.fsdp_reshard_after_forward"
RECOMPUTE = "activation_checkpoint.mode"
"""Up to 0.2; from 0.3 on it is a part of the chosen configuration."""
RECOMPUTE_DEFAULT = "selective"
MICRO_BATCH_DEFAULT = 8
OLDER = {
    MICRO_BATCH: "training.batch_size",
    REPLICATE: "training.data_parallel_replicate_degree",
    SHARD: "training.data_parallel_shard_degree",
    RESHARD: "training.fsdp_reshard_after_forward",
    DEGREES["tensor_parallel"]: "training.tensor_parallel_degree",
    DEGREES["context_parallel"]: "experimental.context_parallel_degree",
    DEGREES["pipeline_parallel"]: "experimental.pipeline_parallel_degree",
}
"""Names before 0.1, as files of that time have them; there was no accumulation."""
STEPS = "training.steps"
DUMP_FOLDER = "job.dump_folder"
SAVES = ("checkpoint.enable", "checkpoint.enable_checkpoint")
SAVE_EVERY = "checkpoint.interval"
EVALUATES = ("validation.enable", "validation.enabled")
"""The second ones are those of 0.1."""
EVALUATE_EVERY, EVALUATE_STEPS = "validation.freq", "validation.steps"
ALL_STEPS, MOST_STEPS = -1, 10
"""Steps of an evaluation: all that there are, and in a soak; none needs more memory."""
OFF_IN_TRIALS = (
    "metrics.enable_tensorboard",
    "metrics.enable_wandb",
    "profiling.enable_profiling",
)
"""Keys of the file that are set to false where it has them, with those above."""
OFFLOAD = "training.enable_cpu_offload"
SCHEDULE = "parallelism.pipeline_parallel_schedule"
INTERLEAVED = "Interleaved1F1B"
