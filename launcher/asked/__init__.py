"""Questions: each parameter declared once, asked by flags or by Python's keywords."""

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
