"""Questions: each parameter declared once, asked by flags or by Python's keywords."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

from .engine_names import ENGINE, ENGINES, EngineFacts, HostSource, engine_facts
from .launch_units import (
    ARGUMENTS,
    CORES,
    ENDPOINT,
    NODE_RANK,
    NODES,
    PORT,
    RESTARTS,
    TRACKER_NAMES,
    Processes,
)
from .parameters import (
    Header,
    Parameter,
    VerbQuestion,
    answers,
    asked_parameters,
    asked_part,
    build_question,
    flag_words,
    parameter,
    question,
    read_flags,
    with_known_flags,
)
from .recommending import RecommendCommand, RecommendQuestion
from .results import (
    TABLE_FORMS,
    CompareCommand,
    ExportCommand,
    ShowCommand,
    ShowSpacesCommand,
    ValidateCommand,
    ValidateQuestion,
)
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
    FitQuestion,
    Goal,
    PlanQuestion,
    PlanRanking,
    RealRuns,
    TrainingBudget,
    TrainingQuestion,
)
from .training_commands import CsvForm, FitCommand, OnScreen, PlanCommand, PlanFiles
from .units import (
    FILE,
    MOST,
    NAME,
    ON,
    ValueUnit,
    at_least,
    refuse_other_than_path,
    refuse_other_than_text,
    tokens_text,
)
from .verb_parser import VerbParser, unknown_flag

if TYPE_CHECKING:
    from .tuning import (
        HOSTS,
        OF_A_TUNE,
        RESULTS,
        SCRIPT,
        TUNING,
        OwnKnob,
        RankCount,
        TuneQuestion,
        UserWords,
    )
else:  # with pydantic, unlike --help
    __getattr__ = attach(
        __name__,
        {
            ".tuning": (
                "HOSTS OF_A_TUNE RESULTS SCRIPT TUNING OwnKnob RankCount TuneQuestion UserWords"
            )
        },
    )
