"""``plan --inference`` and ``fit --inference``: text generation instead of training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from autoconf_launch.autotuner.cost import Verdict
from autoconf_launch.core import NothingFeasibleError

from ..asked import FitInferenceCommand, PlanInferenceCommand, read_flags
from ..inference import (
    fit_inference_answer,
    fit_inference_document,
    fit_inference_request,
    fit_inference_text,
    plan_inference_answer,
    plan_inference_document,
    plan_inference_request,
    plan_inference_text,
    why_not_within,
)
from ..interrupts import DoesNotFitError
from ..report import why_not_fit


def plan_inference(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown name, or a model that generates no text so.
        NothingFeasibleError: no point fits or is within the bound; all has been yielded by then.
    """
    request = plan_inference_request(read_flags(PlanInferenceCommand, arguments))
    answer = plan_inference_answer(request)
    if request.json:
        yield json.dumps(plan_inference_document(answer), indent=2, allow_nan=False)
    else:
        yield plan_inference_text(answer)
    if answer.recommended is None:
        raise NothingFeasibleError(why_not_within(answer))


def fit_inference(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown name, or a model that generates no text so.
        DoesNotFitError: the answer is no; everything has been yielded by then.
    """
    request = fit_inference_request(read_flags(FitInferenceCommand, arguments))
    answer = fit_inference_answer(request)
    if request.json:
        yield json.dumps(fit_inference_document(answer), indent=2, allow_nan=False)
    else:
        yield fit_inference_text(answer)
    if answer.verdict is Verdict.NO:
        raise DoesNotFitError(why_not_fit(answer.point.peak_bytes, answer.serving.limit_bytes))
