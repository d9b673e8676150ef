"""Trainer arguments of Lightning 2, as LightningCLI and variables spell them.

Checked against ``pytorch/trainer/trainer.py``, ``pytorch/strategies`` and
``pytorch/utilities/argparse.py`` of lightning 2.0.9, 2.1.4 and 2.6.6 (PyPI).
"""

from __future__ import annotations

from ..versions import Known

KNOWN = Known(package="lightning", oldest=(2, 0), newest=(2, 6))
CLI = "--trainer."
VARIABLE = "PL_TRAINER_"
"""A Trainer takes what its call leaves out from variables of this name in capitals."""
ACCUMULATION = "accumulate_grad_batches"
STRATEGY = "strategy"
STAGES: tuple[tuple[str, int], ...] = (
    ("auto", 0),
    ("ddp", 0),
    ("fsdp", 3),
    ("deepspeed_stage_1", 1),
    ("deepspeed_stage_2", 2),
    ("deepspeed_stage_3", 3),
    ("single_device", 0),
    ("ddp_find_unused_parameters_true", 0),
    ("ddp_find_unused_parameters_false", 0),
    ("ddp_spawn", 0),
    ("fsdp_cpu_offload", 3),
    ("deepspeed", 2),
    ("deepspeed_stage_1_offload", 1),
    ("deepspeed_stage_2_offload", 2),
    ("deepspeed_stage_3_offload", 3),
)
"""Names of strategies; the first one of a stage is written."""
DATA_KEYS = (
    ("data", "batch_size"),
    ("data", "init_args", "batch_size"),
    ("model", "batch_size"),
    ("model", "init_args", "batch_size"),
)
MONITORS = ("LearningRateMonitor", "DeviceStatsMonitor")
"""Callbacks that refuse a Trainer without a logger."""
CHECKPOINTERS = ("ModelCheckpoint",)
"""Callbacks that refuse a Trainer that saves nothing."""
PRECISION = "precision"
VALIDATES = "validation_step"
EVALUATION = ("val_check_interval", "check_val_every_n_epoch", "None")
"""Batches between two, counted over epochs where the second one is None."""
EPOCH = ("limit_train_batches", "max_epochs", "-1")
"""Batches of an epoch, of which there are then as many as the steps need."""
CLI_WORDS = {"False": "false", "True": "true", "None": "null"}
"""Words of variables, which are Python's, as a LightningCLI's, which are YAML's."""
