"""Time and memory of generating text by formula, for any model, layout and batch."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

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
    __getattr__ = lazy_names(__name__, __file__)
