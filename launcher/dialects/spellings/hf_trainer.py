"""Arguments of Hugging Face ``TrainingArguments``, by version.

Checked against ``training_args.py`` of transformers 4.30.2, 4.36.2, 4.40.2, 4.41.2, 4.44.2,
4.45.2, 4.46.3, 4.57.1, 5.0.0 and 5.23.0, as they are on PyPI.
"""

from __future__ import annotations

from ..versions import NEWEST, Known, Renamed, Version

KNOWN = Known(package="transformers", oldest=(4, 30), newest=(5, 23))
MICRO_BATCH = "--per_device_train_batch_size"
MICRO_BATCH_DEFAULT = 8
ACCUMULATION = "--gradient_accumulation_steps"
RECOMPUTE = ("--gradient_checkpointing", "--activation_checkpointing")
FSDP = "--fsdp"
FSDP_STAGES = {"full_shard": 3, "shard_grad_op": 2, "true": 3}
"""Strategies of ``--fsdp`` as stages of ZeRO; a bare ``--fsdp`` (from 5.0 on) is the first."""
FSDP_WRAP = "auto_wrap"
FSDP_OFFLOAD = "offload"
RENAMED = (
    Renamed(argument="--evaluation_strategy", gone_in=(4, 57), now="use --eval_strategy"),
    Renamed(argument="--no_cuda", gone_in=(5, 0), now="use --use_cpu"),
    Renamed(
        argument="--per_gpu_train_batch_size", gone_in=(5, 0), now=f"use {MICRO_BATCH} instead"
    ),
    Renamed(argument="--overwrite_output_dir", gone_in=(5, 0), now="remove it"),
    Renamed(argument="--logging_dir", gone_in=(5, 23), now="set TENSORBOARD_LOGGING_DIR"),
)
ADDED: tuple[tuple[str, Version], ...] = (
    ("--use_liger_kernel", (4, 45)),
    ("--eval_strategy", (4, 41)),
    ("--activation_checkpointing", (5, 23)),
)
"""Versions in which these were seen first."""
KNOBS = (
    "--bf16",
    "--fp16",
    "--tf32",
    "--optim",
    "--torch_compile",
    "--fsdp",
    "--fsdp_config",
    "--deepspeed",
    "--ddp_bucket_cap_mb",
)
"""Further arguments that ``--knob`` may list, in all versions; those of ``ADDED`` from theirs."""
IN_TRIALS: tuple[tuple[str, str, Version, Version], ...] = (
    ("--save_strategy", "no", KNOWN.oldest, NEWEST),
    ("--report_to", "none", KNOWN.oldest, NEWEST),
    ("--push_to_hub", "false", KNOWN.oldest, NEWEST),
    ("--load_best_model_at_end", "false", KNOWN.oldest, NEWEST),
    ("--eval_strategy", "no", (4, 41), NEWEST),
    ("--eval_on_start", "false", (4, 44), NEWEST),
    ("--evaluation_strategy", "no", KNOWN.oldest, (4, 41)),
)
"""Argument, value, from this version, to before that one."""
EVALUATION = ("--eval_strategy", "--evaluation_strategy")
NOT_IN_TRIALS = ("--resume_from_checkpoint",)
"""A trial begins at the first step: one that is long past would leave it nothing to measure."""
