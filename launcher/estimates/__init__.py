"""Requests and answers of fit, plan and recommend, of text generation too."""

from .base_config import base_config_text, base_document, completed_document, custom_model
from .clusters import (
    ChosenPrice,
    choose_cluster,
    choose_price,
    chosen_prices,
    has_rates,
    machine_of,
    profiled_format_gains,
    require_equal_nodes,
    require_rates,
)
from .fit import FitAnswer, HostMemory, fit_answer
from .models import model_of_flags
from .parts import ChoiceSensitivity, RankedParts, every_candidate, machine_kinds
from .plan import PlanAnswer, plan_answer, plan_clusters, refuse_runs
from .recommend import GpusForDays, Recommendation, recommendation
from .recommend_question import cluster_of
from .requests import FitRequest, PlanRequest, TrainingRequest, limit_to_lift
from .resolve import fit_request, parse_fit, parse_plan, plan_request, same_values
from .serving import (
    INFERENCE,
    FitInferenceAnswer,
    PlanInferenceAnswer,
    Serving,
    fit_inference_answer,
    fit_inference_request,
    near_most,
    plan_inference_answer,
    plan_inference_request,
)
from .trainers import (
    BY_SCRIPT,
    RowState,
    plan_only_rule,
    trains_here,
    usual_training,
    with_trainer,
)
from .verifying import NamedRun, Verifying
