"""Keys of DeepSpeed's ``zero_optimization``.

Checked against ``runtime/zero/config.py`` of deepspeed 0.19.8 (PyPI); those behind ``stage3_``
are its aliases there.
"""

from __future__ import annotations

from ..versions import Known

KNOWN = Known(package="deepspeed", oldest=(0, 0), newest=(0, 19))
"""The names below were checked in the newest; no older version is refused."""

ZERO_KEYS = (
    "contiguous_gradients",
    "reduce_scatter",
    "reduce_bucket_size",
    "use_multi_rank_bucket_allreduce",
    "allgather_partitions",
    "allgather_bucket_size",
    "overlap_comm",
    "load_from_fp32_weights",
    "elastic_checkpoint",
    "offload_param",
    "offload_optimizer",
    "sub_group_size",
    "ignore_unused_parameters",
    "round_robin_gradients",
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_gradients",
    "memory_efficient_linear",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_gather_16bit_weights_on_model_save",
    "stage3_module_granularity_threshold",
)
