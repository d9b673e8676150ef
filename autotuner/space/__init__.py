"""What may be tried: knobs, candidates as columns, constraints, settings, and a trial's record."""

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

    from .budget import SearchBudget, longer_budget, parse_budget, parse_share
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
    from .knobs import RECOMPUTE_LAYERS, candidate_name, extra_order
    from .objective import OBJECTIVES, Objective
    from .settings import ALIASES, AutotuningSettings, EffortName, parse_settings
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
        Conditions,
        FailedTrial,
        GpuState,
        Measurement,
        Outcome,
        Prediction,
        Record,
        Trial,
        Turn,
        decode_record,
        encode_record,
    )
else:
    __getattr__ = attach(
        __name__,
        {
            ".budget": "SearchBudget longer_budget parse_budget parse_share",
            ".constraints": (
                "UNCALIBRATED_MEMORY_BAND RejectedCounts Rule add_counts apply_rules "
                "blocks_fill_units blocks_for_stages blocks_to_recompute degree_rule "
                "is_out_of_memory is_sure surely_needs_more tokens_for_sequence"
            ),
            "autoconf_launch.core": (
                "KNOBS LAYOUT_KNOBS OFFLOAD_EXTRAS LayoutValue Naming parse_value"
            ),
            ".knobs": "RECOMPUTE_LAYERS candidate_name extra_order",
            ".objective": "OBJECTIVES Objective",
            ".settings": "ALIASES AutotuningSettings EffortName parse_settings",
            ".space": "ChoiceKind GlobalBatchRule KnobChoice SearchSpace build_space",
            ".stage": (
                "TUNING_SPACES ZERO_SPACES StageProgress is_better space_name space_number "
                "space_numbers"
            ),
            ".table": (
                "ABSENT LEFT_OUT Bools CandidateTable CodedColumn Floats Ints "
                "PredictionTable concat"
            ),
            ".trial": (
                "Conditions FailedTrial GpuState Measurement Outcome Prediction Record Trial "
                "Turn decode_record encode_record"
            ),
        },
    )
