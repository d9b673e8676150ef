"""Requests and answers of fit, plan and recommend."""

from .answers import PlanAnswer, chosen_prices, plan_answer, plan_clusters, refuse_runs
from .fit import FitAnswer, HostMemory, StageFits, fit_answer
from .model_choice import (
    base_config_text,
    base_document,
    completed_document,
    custom_model,
    model_of_flags,
    write_base_config,
    write_text,
)
from .parts import ChoiceSensitivity, RankedParts, every_candidate, machine_kinds
from .recommend import GpusForDays, Recommendation, recommendation
from .recommend_cluster import ChosenCluster, cluster_of
from .requests import FitRequest, PlanRequest, TrainingRequest, limit_to_lift
from .resolve import fit_request, parse_fit, parse_plan, plan_request, same_values
from .runnable import UNKNOWN_MODEL, UNKNOWN_TRAINING, RowState, plan_only_rule, trains_here
from .training_choice import (
    BY_SCRIPT,
    ChosenPrice,
    check_precision,
    choose_cluster,
    choose_price,
    has_rates,
    limit_memory,
    machine_of,
    profiled_format_gains,
    require_equal_nodes,
    require_rates,
    usual_training,
    with_trainer,
)
from .verifying import NamedRun, Verifying
