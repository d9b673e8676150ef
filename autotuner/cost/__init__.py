"""Bytes and seconds of any layout by formula. Which layout is best is the planner's question."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .calibration import (
        LARGEST_ERROR,
        NINE_OF_TEN,
        NOISE,
        SPREADS,
        SURPRISE,
        Corrections,
        ErrorBelief,
        Likeness,
        TimeAccuracy,
        calibration_factors,
        corrections,
        effect_scale,
        likeness,
        mape,
        spearman,
        time_accuracy,
    )
    from .fitting import (
        NodeLimits,
        Proposal,
        Remedy,
        Verdict,
        broken_rule,
        can_split_sequence,
        fits,
        remedies,
        verdict,
    )
    from .hardware import (
        ALL_REDUCE,
        CPU_PHYSICS,
        DEFAULT_PHYSICS,
        GATHER,
        SENT,
        Accelerator,
        CollectiveRate,
        Fabric,
        Group,
        Link,
        Machine,
        Network,
        Physics,
        computes_in,
        crossed_rails,
        exposed_s,
        has_rails,
        link_s,
        peak_flops_per_s,
        ring_s,
        ring_share,
    )
    from .inner import GATHERED_MATRICES, InnerTimes, inner_times
    from .kernel_times import (
        KernelTimes,
        Roofline,
        TracedOperations,
        block_operations,
        forward_flops_per_token,
        frozen_passes_s,
        measured_timings,
        rank_weights,
        update_traffic_bytes,
    )
    from .layer import (
        Kernels,
        attention_times,
        layer_times,
    )
    from .layout_columns import (
        ALL_LAYERS,
        OFFLOAD_CODES,
        RECOMPUTE_CODES,
        InnerLayouts,
        LayoutColumns,
        Stack,
        distinct,
        stacks,
    )
    from .layout_rules import (
        RULES,
        Keep,
        LayoutRule,
        Stages,
        StageSends,
        can_cut,
        has_even_pieces,
        rows_obeying,
    )
    from .memory import (
        MEMORY_BAND,
        NCCL_BYTES,
        MemoryParts,
        memory_bytes,
    )
    from .model_state import local_weights, trained_share
    from .predictions import (
        EAGER_BAND,
        EXPERTS_BAND,
        STEP_TIME_BAND,
        FormatGain,
        estimate,
        format_gains,
        knob_rules,
        measured_format_gains,
        memory_rule,
        scaled_bytes,
        state_beyond_memory,
        traced_memory,
        untimed_band,
        weights_beyond_memory,
    )
    from .software import (
        AUTO_TRAINER,
        Abilities,
        TrainerChoice,
        TrainerHabits,
        configured_workload,
        has_flat_gathers,
        kernel_traits,
        overlaps_reduction,
    )
    from .step import (
        MOST_HIDDEN,
        StepParts,
        beyond_backward_s,
        profiled_step_parts,
        reduction_passes,
    )
    from .weights import (
        active_parameters,
        model_weights,
        parameters,
    )
else:
    __getattr__ = attach(
        __name__,
        {
            ".calibration": (
                "LARGEST_ERROR NINE_OF_TEN NOISE SPREADS SURPRISE Corrections ErrorBelief "
                "Likeness TimeAccuracy calibration_factors corrections effect_scale likeness "
                "mape spearman time_accuracy"
            ),
            ".fitting": (
                "NodeLimits Proposal Remedy Verdict broken_rule can_split_sequence fits remedies "
                "verdict"
            ),
            ".hardware": (
                "ALL_REDUCE CPU_PHYSICS DEFAULT_PHYSICS GATHER Accelerator CollectiveRate "
                "Fabric Group Link Machine Network Physics SENT computes_in crossed_rails "
                "exposed_s has_rails link_s peak_flops_per_s ring_s ring_share"
            ),
            ".inner": "GATHERED_MATRICES InnerTimes inner_times",
            ".kernel_times": (
                "KernelTimes Roofline TracedOperations block_operations "
                "forward_flops_per_token frozen_passes_s measured_timings rank_weights "
                "update_traffic_bytes"
            ),
            ".layer": ("Kernels attention_times layer_times"),
            ".layout_columns": (
                "ALL_LAYERS OFFLOAD_CODES RECOMPUTE_CODES InnerLayouts LayoutColumns Stack "
                "distinct stacks"
            ),
            ".layout_rules": (
                "RULES Keep LayoutRule Stages StageSends can_cut has_even_pieces rows_obeying"
            ),
            ".memory": "MEMORY_BAND NCCL_BYTES MemoryParts memory_bytes",
            ".model_state": "local_weights trained_share",
            ".predictions": (
                "EAGER_BAND EXPERTS_BAND STEP_TIME_BAND FormatGain estimate format_gains "
                "knob_rules measured_format_gains memory_rule scaled_bytes "
                "state_beyond_memory traced_memory untimed_band weights_beyond_memory"
            ),
            ".software": (
                "AUTO_TRAINER Abilities TrainerChoice TrainerHabits configured_workload "
                "has_flat_gathers kernel_traits overlaps_reduction"
            ),
            ".step": (
                "MOST_HIDDEN StepParts beyond_backward_s profiled_step_parts reduction_passes"
            ),
            ".weights": ("active_parameters model_weights parameters"),
        },
    )
