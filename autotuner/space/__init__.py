"""The search space: knobs, candidates as columns, constraints, settings, a trial's record."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from autoconf_launch.core import (
        KNOBS,
        LAYOUT_KNOBS,
        OFFLOAD_EXTRAS,
        LayoutValue,
        Naming,
        parse_value,
    )

    from .constraints import (
        UNCALIBRATED_MEMORY_BAND,
        RejectedCounts,
        Rule,
        add_counts,
        apply_rules,
        blocks_fill_units,
        blocks_for_stages,
        blocks_to_recompute,
        degree_rule,
        is_out_of_memory,
        is_sure,
        surely_needs_more,
        tokens_for_sequence,
    )
    from .settings import (
        ALIASES,
        OBJECTIVES,
        AutotuningSettings,
        EffortName,
        Objective,
        SearchBudget,
        longer_budget,
        parse_budget,
        parse_settings,
        parse_share,
        setting_fault,
    )
    from .space import ChoiceKind, GlobalBatchRule, KnobChoice, SearchSpace, build_space
    from .stage import (
        TUNING_SPACES,
        ZERO_SPACES,
        StageProgress,
        is_better,
        space_name,
        space_number,
        space_numbers,
    )
    from .table import (
        ABSENT,
        LEFT_OUT,
        Bools,
        CandidateTable,
        CodedColumn,
        Floats,
        Ints,
        PredictionTable,
        concat,
    )
    from .trial import (
        RECOMPUTE_LAYERS,
        Conditions,
        FailedTrial,
        GpuState,
        Measurement,
        Outcome,
        Prediction,
        Record,
        Trial,
        Turn,
        candidate_name,
        decode_record,
        encode_record,
        extra_order,
    )
else:
    __getattr__ = attach(
        __name__,
        {
            "autoconf_launch.core": (
                "KNOBS LAYOUT_KNOBS OFFLOAD_EXTRAS LayoutValue Naming parse_value"
            ),
            ".constraints": (
                "UNCALIBRATED_MEMORY_BAND RejectedCounts Rule add_counts apply_rules "
                "blocks_fill_units blocks_for_stages blocks_to_recompute degree_rule "
                "is_out_of_memory is_sure surely_needs_more tokens_for_sequence"
            ),
            ".settings": (
                "ALIASES OBJECTIVES AutotuningSettings EffortName Objective SearchBudget "
                "longer_budget parse_budget parse_settings parse_share setting_fault"
            ),
            ".space": "ChoiceKind GlobalBatchRule KnobChoice SearchSpace build_space",
            ".stage": (
                "TUNING_SPACES ZERO_SPACES StageProgress is_better space_name space_number "
                "space_numbers"
            ),
            ".table": (
                "ABSENT LEFT_OUT Bools CandidateTable CodedColumn Floats Ints PredictionTable "
                "concat"
            ),
            ".trial": (
                "RECOMPUTE_LAYERS Conditions FailedTrial GpuState Measurement Outcome "
                "Prediction Record Trial Turn candidate_name decode_record encode_record "
                "extra_order"
            ),
        },
    )
