"""Bytes and seconds of any layout by formula. Which layout is best is the planner's question."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .calibration import (
        NOISE,
        SPREADS,
        Likeness,
        TimeAccuracy,
        calibrated_s,
        knob_rules,
        likeness,
        mape,
        memory_rule,
        predict,
        state_beyond_memory,
        time_accuracy,
        weights_beyond_memory,
    )
    from .fitting import Proposal, Remedy, Verdict, fits, remedies, verdict
    from .hardware import (
        DEFAULT_PHYSICS,
        Accelerator,
        CollectiveRate,
        Link,
        Machine,
        Physics,
    )
    from .layer import Kernels, all_layers, dense_layer_weights, embedding_weights
    from .layout_columns import (
        ALL_LAYERS,
        OFFLOAD_CODES,
        RECOMPUTE_CODES,
        LayoutColumns,
    )
    from .layout_rules import RULES, Keep, LayoutRule, broken_rule
    from .memory import (
        CONTEXT_BYTES,
        FRAGMENTATION,
        MEMORY_BAND,
        NCCL_BYTES,
        MemoryParts,
        StageMemory,
        memory_bytes,
        memory_parts,
        peak_bytes,
    )
    from .model_state import trained_share, trained_weights
    from .numeric import fit_line, scaled_bytes
    from .parameter_count import active_parameters, model_weights, parameters
    from .profiled_time import (
        EAGER_BAND,
        Network,
        StepSeconds,
        forward_backward_s,
        profiled_update_s,
        step_seconds,
    )
    from .step import StepParts, between, concatenate, least_step_s, recomputed_share, step_parts
    from .training import (
        OPTIMIZER_BYTES,
        TRAINERS,
        TrainingFacts,
        kernel_traits,
        trainer,
    )
else:
    __getattr__ = lazy_names(__name__, __file__)
