"""Every key of a DeepSpeed configuration, and how it is treated.

Source:
    DeepSpeed 0.19.8: runtime/config.py, runtime/zero/config.py, runtime/zero/offload_config.py,
    runtime/precision_config.py, runtime/tensor_parallel/config.py; __init__.py for the degrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from autoconf_launch.core import KeyPath
from autoconf_launch.core import config_keys as keys


class Treatment(Enum):
    """How a key of the file is treated."""

    KNOWN = "known"
    """It is read: it decides the batch, the layout or the precision, or is a knob that a list
    searches."""
    MEASURED = "passed on, with a note"
    """It changes memory or the batch's shape in ways that predictions omit."""
    PASSED = "passed on"
    """It changes neither layout nor batch nor memory to speak of."""
    REMOVED = "refused"
    """DeepSpeed 0.19.8 refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroup:
    """The keys of one section by their treatment.

    Attributes:
        known: see ``Treatment``.
        measured: see ``Treatment``.
        passed: see ``Treatment``.
        removed: see ``Treatment``.
        is_closed: DeepSpeed refuses other keys in it.
    """

    known: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_closed: bool = True

    def treatments(self) -> Iterator[tuple[str, Treatment]]:
        groups = (
            (self.known, Treatment.KNOWN),
            (self.measured, Treatment.MEASURED),
            (self.passed, Treatment.PASSED),
            (self.removed, Treatment.REMOVED),
        )
        for names, treatment in groups:
            for name in names:
                yield name, treatment


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_STAGE_3 = (
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "model_persistence_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "gather_16bit_weights_on_model_save",
    "module_granularity_threshold",
    "use_all_reduce_for_fetch_params",
    "allgather_sequential",
)
"""Keys that are written with ``stage3_`` before them, or without."""
DEEPSPEED_MONITORS = ("wandb", "tensorboard", "csv_monitor", "comet")
_OFFLOAD = ("nvme_path", "buffer_count", "pin_memory")

DEEPSPEED_KEYS: Mapping[KeyPath, KeyGroup] = MappingProxyType(
    {
        (): KeyGroup(
            known=(
                *_words(
                    "train_batch_size train_micro_batch_size_per_gpu "
                    "gradient_accumulation_steps managed_gradient_accumulation "
                    "sequence_parallel_size data_parallel_size tensor_parallel "
                    "zero_optimization bf16 bfloat16 fp16 gradient_clipping optimizer "
                    "scheduler activation_checkpointing autotuning arg_mappings args_mapping"
                ),
                *DEEPSPEED_MONITORS,
            ),
            measured=_words(
                "compile data_efficiency data_types expert_parallel hybrid_engine "
                "pipeline torch_autocast weight_quantization"
            ),
            passed=_words(
                "aio allgather_size checkpoint comms_logger communication_data_type "
                "dataloader_drop_last datastates_ckpt disable_allgather disable_python_gc "
                "dump_state flops_profiler gradient_allreduce_op "
                "gradient_predivide_factor log_level memory_breakdown prescale_gradients "
                "seq_parallel_communication_data_type steps_per_print timers "
                "use_data_before_expert_parallelism vocabulary_size wall_clock_breakdown "
                "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer"
            ),
            removed=_words(
                "amp compression_training curriculum_learning eigenvalue elasticity "
                "graph_harvesting nebula progressive_layer_drop quantize_training "
                "sparse_attention sparse_gradients"
            ),
            is_closed=False,
        ),
        keys.ZERO: KeyGroup(
            known=(
                *_words(
                    "stage contiguous_gradients reduce_scatter reduce_bucket_size "
                    "use_multi_rank_bucket_allreduce allgather_partitions "
                    "allgather_bucket_size overlap_comm offload_param offload_optimizer "
                    "cpu_offload cpu_offload_param sub_group_size round_robin_gradients "
                    "parameter_alignment zero_quantized_weights zero_quantized_gradients "
                    "memory_efficient_linear legacy_stage1"
                ),
                *_STAGE_3,
                *(f"stage3_{name}" for name in _STAGE_3),
            ),
            measured=_words("zenflow zero_hpz_partition_size zero_quantized_nontrainable_weights"),
            passed=_words(
                "compute_grad_norm cpu_offload_use_pin_memory elastic_checkpoint "
                "enable_sanity_checks ignore_unused_parameters leaf_module "
                "load_from_fp32_weights log_trace_cache_warnings override_module_apply "
                "pipeline_loading_checkpoint save_muon_momentum_buffer_in_memory "
                "stage3_gather_fp16_weights_on_model_save"
            ),
            removed=("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param"),
        ),
        (*keys.ZERO, "offload_param"): KeyGroup(
            known=(*_OFFLOAD, "buffer_size", "max_in_cpu"), measured=("device",)
        ),
        (*keys.ZERO, "offload_optimizer"): KeyGroup(
            known=(*_OFFLOAD, "pipeline_read", "pipeline_write", "fast_init"),
            measured=("device", "ratio", "super_offload"),
            passed=("cpuadam_cores_perc",),
        ),
        (*keys.ZERO, "leaf_module"): KeyGroup(passed=("classes", "names", "name_suffixes")),
        ("bf16",): KeyGroup(
            known=("enabled",),
            measured=_words(
                "immediate_grad_update bf16_master_weights_and_grads bf16_optimizer_states"
            ),
            passed=("check_grad_overflow",),
        ),
        ("fp16",): KeyGroup(
            known=("enabled", "loss_scale"),
            measured=("auto_cast", "fp16_master_weights_and_grads"),
            passed=_words(
                "initial_scale_power loss_scale_window hysteresis consecutive_hysteresis "
                "min_loss_scale"
            ),
        ),
        ("tensor_parallel",): KeyGroup(
            known=("autotp_size", "tp", "tensor_parallel"),
            measured=("dtype", "vocab_parallel_lm_head", "keep_module_on_host"),
            passed=_words(
                "tp_overlap_comm vocab_parallel_ce_backend injection_policy_tuple "
                "partition_config preset_model replace_with_kernel_inject kernel_inject"
            ),
        ),
        ("tensor_parallel", "tp"): KeyGroup(
            known=("tp_size",), passed=("tp_grain_size", "mpu", "tp_group")
        ),
        ("data_types",): KeyGroup(
            measured=("grad_accum_dtype", "param_dtype", "buffer_dtype", "keep_in_fp32_modules"),
            is_closed=False,
        ),
        ("torch_autocast",): KeyGroup(
            measured=("enabled",),
            passed=("dtype", "lower_precision_safe_modules"),
            is_closed=False,
        ),
        keys.OPTIMIZER: KeyGroup(
            known=("type",), passed=("params", "legacy_fusion"), is_closed=False
        ),
        keys.SCHEDULER: KeyGroup(passed=("type", "params"), is_closed=False),
        keys.RECOMPUTE[:1]: KeyGroup(
            known=_words(
                "partition_activations number_checkpoints contiguous_memory_optimization "
                "synchronize_checkpoint_boundary cpu_checkpointing profile"
            ),
            is_closed=False,
        ),
        ("pipeline",): KeyGroup(
            measured=("activation_checkpoint_interval",),
            passed=(
                "stages",
                "partition",
                "seed_layers",
                "pipe_partitioned",
                "grad_partitioned",
                "use_reentrant",
            ),
            is_closed=False,
        ),
    }
)
"""Every key; a section that is missing here is treated as a whole."""


def treatments() -> Iterator[tuple[KeyPath, Treatment]]:
    """Every key with its treatment."""
    for section, rows in DEEPSPEED_KEYS.items():
        for name, treatment in rows.treatments():
            yield (*section, name), treatment
