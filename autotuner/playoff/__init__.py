"""The end of a tune: the rounds of the best, the verification run, the summary."""

from .decision import Decision, best_of, decide
from .duration import (
    START_S,
    TimeRange,
    TuneOutlook,
    playoff_s,
    predicted_outlook,
    time_left,
    verification_range,
)
from .meaning import LossComparison, MeaningVerdict, Obstacle
from .playoff import (
    Decider,
    Playoff,
    PlayoffBudget,
    choose_contenders,
    fit_together,
    round_times_s,
)
from .rule import TIE_WIDTH, Rounds, TuneVerdict, ranking, rounds_of
from .soak import (
    FEWEST_STEPS,
    MOST_MEMORY,
    SOAK_SUFFIX,
    LackOfTime,
    Refusal,
    Soak,
    SoakReport,
    soaked_name,
    verification_steps,
)
from .summary import (
    Launches,
    LearningRateAdvice,
    Summary,
    SummaryRow,
    TimeParts,
    summarise,
    summarise_launches,
)
