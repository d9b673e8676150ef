"""``fit``: does a training fit, part by part on every pipeline stage.

``fit --model M --cluster C --seq S --global-batch B [layout] [--json]``, or for a script as it is
``fit --cluster C [flags] -- python train.py …``; ``fit --inference`` is for text generation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from autoconf_launch.autotuner.cost import LayoutColumns, Verdict, estimate
from autoconf_launch.core import Layout, Recompute

from ..asked import FitInferenceCommand, read_flags
from ..estimates import (
    INFERENCE,
    FitAnswer,
    fit_answer,
    fit_inference_answer,
    fit_inference_request,
    parse_fit,
)
from ..first_forward import PeakOf, ask_fit, fit_by_pieces, rooms, split_command
from ..interrupts import DoesNotFitError
from ..report import (
    fit_document,
    fit_inference_document,
    fit_inference_text,
    fit_text,
    host_limit_text,
    memory_size,
    rooms_table,
    script_document,
    script_text,
    why_not_fit,
)


def fit(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown name or an impossible layout.
        DoesNotFitError: the answer is no; everything has been yielded by then.
    """
    own, command = split_command(arguments)
    if INFERENCE in own:
        yield from fit_inference(arguments)
        return
    if command is not None:
        yield from _fit_script(own, command)
        return
    request = parse_fit(own)
    answer = fit_answer(request)
    as_json = request.training.json
    yield json.dumps(fit_document(answer), indent=2) if as_json else fit_text(answer)
    _require_answer_fits(answer)


def _fit_script(own: Sequence[str], command: Sequence[str]) -> Iterator[str]:
    request, script = ask_fit(parse_fit(own, of_script=True), command)
    if script.architecture is None:
        answer, found = fit_by_pieces(request, script)
    else:
        answer = fit_answer(request)
        peak_of, limit_bytes = _peak_of(answer), answer.limit_bytes
        found = rooms(answer.asked.layout, tuple(Recompute), peak_of, limit_bytes)
    if request.training.json:
        document = {**fit_document(answer), "script": script_document(script, found)}
        yield json.dumps(document, indent=2, allow_nan=False)
    else:
        yield "\n\n".join((script_text(script), fit_text(answer), rooms_table(script, found)))
    _require_answer_fits(answer)


def _peak_of(answer: FitAnswer) -> PeakOf:
    """The memory of other layouts of the same training."""

    def peak(layout: Layout) -> float:
        columns = LayoutColumns.from_layouts([layout], [answer.asked.recompute_layers])
        return float(estimate(columns, answer.asked.workload, answer.cluster).peak_bytes_C[0])

    return peak


def _require_answer_fits(answer: FitAnswer) -> None:
    host, needed_bytes = answer.host, float(answer.memory.total.max())
    if answer.by_stages is not None:
        needed_bytes = answer.by_stages.tightest.peak_bytes
    if host.limit_bytes is not None and host.is_short and needed_bytes <= answer.limit_bytes:
        raise DoesNotFitError(
            f"it does not fit: offload needs {memory_size(host.needed_bytes)} of host memory per "
            f"node; {host_limit_text(host.limit_bytes)}."
        )
    if answer.verdict is Verdict.NO:
        raise DoesNotFitError(why_not_fit(needed_bytes, answer.limit_bytes))


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
