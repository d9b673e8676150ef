"""``plan --inference`` and ``fit --inference``: requests, answers, and their text."""

from .answers import (
    FitInferenceAnswer,
    PlanInferenceAnswer,
    fit_inference_answer,
    plan_inference_answer,
)
from .requests import (
    INFERENCE,
    fit_inference_request,
    plan_inference_request,
)
from .text import (
    fit_inference_document,
    fit_inference_text,
    plan_inference_document,
    plan_inference_text,
    why_not_within,
)
