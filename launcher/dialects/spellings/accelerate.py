"""Variables and configuration keys of Hugging Face Accelerate, by version.

Checked against ``utils/launch.py``, ``utils/dataclasses.py``, ``parallelism_config.py`` and
``commands/config`` of accelerate 0.21.0, 0.27.2, 0.34.2, 1.0.1, 1.6.0, 1.10.1 and 1.15.0 (PyPI).
"""

from __future__ import annotations

from ..versions import Known

KNOWN = Known(package="accelerate", oldest=(0, 21), newest=(1, 15))
ACCUMULATION = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
USE_FSDP = "ACCELERATE_USE_FSDP"
USE_DEEPSPEED = "ACCELERATE_USE_DEEPSPEED"
DEEPSPEED_STAGE = "ACCELERATE_DEEPSPEED_ZERO_STAGE"
FSDP_VERSION = "FSDP_VERSION"
FSDP_VERSION_SINCE = (1, 6)
STRATEGY = "FSDP_SHARDING_STRATEGY"
RESHARD = "FSDP_RESHARD_AFTER_FORWARD"
RECOMPUTE = "FSDP_ACTIVATION_CHECKPOINTING"
RECOMPUTE_SINCE = (0, 34)
USE_PARALLELISM = "ACCELERATE_USE_PARALLELISM_CONFIG"
PARALLELISM_SINCE = (1, 10)
DEGREES = {
    "tensor_parallel": "PARALLELISM_CONFIG_TP_SIZE",
    "context_parallel": "PARALLELISM_CONFIG_CP_SIZE",
}
STAGES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "1": 3, "2": 2}
"""ZeRO stages of FSDP 1's strategies; FSDP 2 says true (3) or false (2) in ``RESHARD``."""
PRECISION = "ACCELERATE_MIXED_PRECISION"
FSDP_ALONE = (("FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP"),)
"""What turning FSDP on needs beside it, where the user says nothing."""
SECTIONS = {
    "fsdp_config": "",
    "parallelism_config": "",
    "deepspeed_config": "ACCELERATE_DEEPSPEED_",
}
"""Sections of the configuration file; a key in capitals behind this is a variable."""
KEYS = {
    "mixed_precision": PRECISION,
    "use_cpu": "ACCELERATE_USE_CPU",
    "gradient_accumulation_steps": ACCUMULATION,
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "deepspeed_config_file": "ACCELERATE_DEEPSPEED_CONFIG_FILE",
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
}
"""Keys, at the top or in a section, whose variable is called otherwise."""
PREFIXES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")
KINDS = {
    "FSDP": ((USE_FSDP, "true"),),
    "DEEPSPEED": ((USE_DEEPSPEED, "true"),),
}
"""What ``distributed_type`` turns on."""
LAUNCH_SWITCHES = (
    "--quiet",
    "-q",
    "--cpu",
    "--multi_gpu",
    "--tpu",
    "--enable_cpu_affinity",
    "--dynamo_use_fullgraph",
    "--dynamo_use_dynamic",
    "--dynamo_use_regional_compilation",
    "--use_deepspeed",
    "--use_fsdp",
    "--use_parallelism_config",
    "--use_megatron_lm",
    "--same_network",
    "-m",
    "--module",
    "--no_python",
    "--tpu_cluster",
    "--no_tpu_cluster",
    "--tpu_use_sudo",
    "--downcast_bf16",
    "--fp8_use_autocast_during_eval",
    "--debug",
)
"""Flags of ``accelerate launch`` that take no value."""
TURNED_ON = {
    "--cpu": "ACCELERATE_USE_CPU",
    "--use_fsdp": USE_FSDP,
    "--use_deepspeed": USE_DEEPSPEED,
    "--use_parallelism_config": USE_PARALLELISM,
    "--debug": "ACCELERATE_DEBUG_MODE",
}
LAUNCH_VARIABLES = {
    "--mixed_precision": PRECISION,
    "--zero_stage": DEEPSPEED_STAGE,
    "--offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "--offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "--gradient_accumulation_steps": ACCUMULATION,
    "--gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "--deepspeed_config_file": "ACCELERATE_DEEPSPEED_CONFIG_FILE",
    "--dynamo_backend": "ACCELERATE_DYNAMO_BACKEND",
    "--dynamo_mode": "ACCELERATE_DYNAMO_MODE",
    "--fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
}
"""Others that are variables; those that begin with ``--fsdp_`` or ``--parallelism_config_`` are
the same words in capitals."""
LAUNCH_SAME = ("--fsdp_", "--parallelism_config_")
PROCESSES, MACHINES, CONFIG_FILE = "--num_processes", "--num_machines", "--config_file"
