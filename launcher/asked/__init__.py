"""Questions: each parameter declared once, asked by flags or by Python's keywords."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .keywords import answers, keyword_errors
    from .parameters import (
        VerbQuestion,
        question,
        read_flags,
        with_dashes,
    )
    from .recommending import RecommendCommand, RecommendQuestion
    from .serving import (
        FitInferenceCommand,
        FitInferenceQuestion,
        PlanInferenceCommand,
        PlanInferenceQuestion,
        ServingPoint,
        ServingPoints,
        ServingQuestion,
    )
    from .training import (
        PRECISIONS,
        TRAINER,
        FitQuestion,
        Goal,
        PlanQuestion,
        PlanRanking,
        RealRuns,
        TrainingQuestion,
    )
    from .training_commands import CsvForm, FitCommand, OnScreen, PlanCommand, PlanFiles
    from .units import MOST, tokens_text
else:
    __getattr__ = lazy_names(__name__, __file__)
