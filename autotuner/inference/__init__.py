"""Time and memory of generating text by formula, for any model, layout and batch."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .engines import ENGINE_HABITS, EngineHabits, engine_habits
    from .generation import Generation, PointColumns
    from .memory import generation_memory, largest_batches
    from .pipeline import GenerationTable, estimate_generation, generation_bands
    from .ranking import (
        InferencePlan,
        InferencePoint,
        InferenceQuestion,
        priced_points,
        rank_points,
        why_no_generation,
        why_not_degrees,
    )
else:
    __getattr__ = attach(
        __name__,
        {
            ".engines": "ENGINE_HABITS EngineHabits engine_habits",
            ".generation": "Generation PointColumns",
            ".memory": "generation_memory largest_batches",
            ".pipeline": "GenerationTable estimate_generation generation_bands",
            ".ranking": (
                "InferencePlan InferencePoint InferenceQuestion priced_points rank_points "
                "why_no_generation why_not_degrees"
            ),
        },
    )
