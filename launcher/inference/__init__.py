"""``plan --inference`` and ``fit --inference``: requests, answers, and their text."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
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
else:
    __getattr__ = lazy_names(__name__, __file__)
