"""What follows a search: the best compared in turn, the verification run, the summary."""

from .contender import PlayoffBudget, choose_contenders, fit_together, ranking
from .decision import Decision, DecisionVerdict, alpha_of, best_of, decide, replay_rounds
from .duration import (
    START_S,
    Resolution,
    TimeRange,
    TuneOutlook,
    playoff_s,
    predicted_outlook,
    round_times_s,
    time_left,
    verification_range,
)
from .meaning import LossComparison, MeaningVerdict, Obstacle
from .playoff import Decider, Playoff
from .soak import (
    FEWEST_STEPS,
    MOST_MEMORY,
    SOAK_SUFFIX,
    FewSteps,
    LackOfTime,
    Refusal,
    Soak,
    SoakReport,
    SpeedGap,
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
