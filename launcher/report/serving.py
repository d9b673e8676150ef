"""The answers of ``plan --inference`` and ``fit --inference`` as text and as documents."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

from autoconf_launch.autotuner.cost import MEMORY_BAND, Verdict, parameters
from autoconf_launch.autotuner.inference import (
    ENGINE_HABITS,
    InferencePoint,
    generation_bands,
)
from autoconf_launch.core import plural

from ..estimates import FitInferenceAnswer, PlanInferenceAnswer, Serving, near_most
from ..machine import is_cpu
from .cells import count_text, gib, memory_size, number_text, percent, step_time_text, three_digits
from .fit import ANSWERS, ROUGH_CPU, parts_table
from .tables import each, rows_documents, rows_text

INFERENCE_SCHEMA_VERSION = 1
_Answer: TypeAlias = FitInferenceAnswer | PlanInferenceAnswer


def _tokens(answer: _Answer, point: InferencePoint) -> float:
    """Output tokens per second of one GPU."""
    return point.samples_per_s_per_gpu * answer.serving.output_len


def _usd(answer: _Answer, point: InferencePoint) -> float | None:
    if answer.price is None:
        return None
    return answer.price.usd_per_gpu_hour / 3600.0 / _tokens(answer, point) * 1e6


def _copies(answer: _Answer, point: InferencePoint) -> int:
    return max(1, len(answer.serving.cluster.devices) // point.gpus)


def _is_late(answer: PlanInferenceAnswer, point: InferencePoint) -> bool:
    return point.latency_s * 1e3 > answer.request.max_latency_ms


POINT_COLUMNS = (
    each("tensor_parallel", "", "tp"),
    each("pipeline_parallel", "", "pp"),
    each("batch", "", "batch"),
    each("ttft_s", "", "TTFT", step_time_text),
    each("token_s", "", "per token", step_time_text),
    each("latency_s", "", "latency", step_time_text),
    each("samples_per_s_per_gpu"),
    each("", lambda a, point: 1.0 / point.token_s, "tokens/s/user", three_digits),
    each("tokens_per_s_per_gpu", _tokens, "tokens/s/GPU", three_digits),
    each("peak_memory_gib", "peak_bytes", "memory", memory_size, data=gib),
    each("largest_batch", "", "largest batch", lambda batch: f"{batch:,}"),
    each("copies", _copies),
    each("usd_per_million_tokens", _usd, "$/M tokens", three_digits),
    each("", _is_late, "over the bound"),
)


def plan_inference_text(answer: PlanInferenceAnswer) -> str:
    """Head, the recommendation, the ranking, and notes on its numbers."""
    blocks = [_headline(answer)]
    if answer.recommended is not None:
        blocks.append(_recommendation(answer, answer.recommended))
    if answer.rows:
        table = rows_text(POINT_COLUMNS, answer.rows, answer, first=1)
        blocks += [table, "\n".join(_notes(answer))]
    return "\n\n".join(blocks)


def why_not_within(answer: PlanInferenceAnswer) -> str:
    """Why no point is recommended: the nearest one, or the lack of memory."""
    plan, serving = answer.plan, answer.serving
    if plan.fit:
        nearest = plan.best[0]
        return (
            f"no point answers within {answer.request.max_latency_ms:,g} ms; the nearest one is "
            f"{_name(nearest)} with {1e3 * nearest.latency_s:,.0f} ms."
        )
    room = memory_size(serving.limit_bytes * (1.0 - answer.request.headroom))
    is_limited = serving.limit_bytes < serving.cluster.least_memory_bytes
    more = "a larger --memory-limit" if is_limited else "more or larger GPUs"
    return (
        f"no point of {serving.model.name} fits in {room} of a GPU; use {more}, or a smaller "
        "--headroom."
    )


def _headline(answer: PlanInferenceAnswer) -> str:
    plan, request = answer.plan, answer.request
    spare = f"{percent(request.headroom)} of {memory_size(answer.serving.limit_bytes)} to spare"
    bound = ""
    if math.isfinite(request.max_latency_ms):
        bound = f", {plan.within:,} of them within {request.max_latency_ms:,g} ms"
    return (
        f"{_serving_text(answer.serving)}\n"
        f"{plural(plan.considered, 'point')} considered in {answer.seconds:.2f} s: "
        f"{plan.fit:,} fit with {spare}{bound}"
    )


def _serving_text(serving: Serving) -> str:
    gpus = serving.cluster.devices
    return (
        f"{serving.model.name}: {count_text(parameters(serving.model))} parameters, "
        f"{serving.input_len:,} tokens in, {serving.output_len:,} out, in "
        f"{serving.precision.value} by {serving.engine}, on {len(gpus):,} x {gpus[0].name}"
    )


def _recommendation(answer: PlanInferenceAnswer, point: InferencePoint) -> str:
    copies = _copies(answer, point)
    tokens, money = _tokens(answer, point) * point.gpus * copies, _money(answer, point)
    used = plural(point.gpus * copies, "GPU")
    writers = f"1 copy on {used} writes" if copies == 1 else f"{copies} copies on {used} write"
    stages = point.pipeline_parallel
    is_full = ENGINE_HABITS[answer.serving.engine].fills_pipeline and stages > 1
    flight = f" ({stages} batches in flight)" if is_full else ""
    near = 0 if answer.request.is_bounded else len(near_most(answer.plan, answer.serving))
    why = (
        f" It has the lowest latency of the {near:,} points whose throughput per GPU is within "
        "the error band of the highest; further rows are by throughput."
    )
    return (
        f"Recommended: {_name(point)}{flight}, {step_time_text(point.latency_s)} for a batch; "
        f"{writers} {number_text(tokens, 3)} tokens/s{money}.{why if near > 1 else ''}"
    )


def _money(answer: _Answer, point: InferencePoint) -> str:
    usd = _usd(answer, point)
    return "" if usd is None else f", ${number_text(usd, 3)} per million output tokens"


def _name(point: InferencePoint) -> str:
    return f"tp {point.tensor_parallel}, pp {point.pipeline_parallel}, batch {point.batch}"


def _notes(answer: PlanInferenceAnswer) -> Iterator[str]:
    if answer.request.pareto:
        yield "No other point is both quicker and has more throughput per GPU than one of these."
    yield (
        "Latency is of a whole batch whose samples start together, from prompt to last token; "
        "tokens are those of answers."
    )
    if ENGINE_HABITS[answer.serving.engine].fills_pipeline and any(
        point.pipeline_parallel > 1 for point in answer.rows
    ):
        yield "With several stages as many batches are in flight, each in another stage."
    yield from _doubts(answer)


def _doubts(answer: _Answer) -> Iterator[str]:
    serving, price = answer.serving, answer.price
    if is_cpu(serving.cluster):
        yield ROUGH_CPU
    else:
        ttft, token = generation_bands(serving.model)
        yield (
            f"90 % error bands from measured kernels: TTFT ±{percent(ttft)}, time per token "
            f"±{percent(token)}; how long requests wait for a batch is not included."
        )
    if price is not None:
        yield f"Price: ${price.usd_per_gpu_hour:.2f} per GPU hour ({price.how})."
    elif not is_cpu(serving.cluster):
        yield "No price of this GPU is known; give one with --usd-per-gpu-hour."


def plan_inference_document(answer: PlanInferenceAnswer) -> dict[str, Any]:
    """A document; ``recommended`` is None if no point is within the bound."""
    plan, request = answer.plan, answer.request
    bound, (ttft, token) = request.max_latency_ms, generation_bands(answer.serving.model)
    recommended = (answer.recommended,) if answer.recommended else ()
    document: dict[str, Any] = {
        "schema_version": INFERENCE_SCHEMA_VERSION,
        **_serving_document(answer),
        "considered": plan.considered,
        "fit": plan.fit,
        "within": plan.within,
        "max_latency_ms": bound if math.isfinite(bound) else None,
        "headroom": request.headroom,
        "seconds": answer.seconds,
        "ttft_band": ttft,
        "token_time_band": token,
        "recommended": next(iter(rows_documents(POINT_COLUMNS, recommended, answer)), None),
        "why_nothing": None if recommended else why_not_within(answer),
        "best": rows_documents(POINT_COLUMNS, plan.best[: request.top], answer),
        "notes": [*_notes(answer)] if answer.rows else [],
    }
    if request.pareto:
        document["front"] = rows_documents(POINT_COLUMNS, plan.front, answer)
    return document


def _serving_document(answer: _Answer) -> dict[str, Any]:
    serving, price = answer.serving, answer.price
    return {
        "model": serving.model.name,
        "parameters": parameters(serving.model),
        "input_len": serving.input_len,
        "output_len": serving.output_len,
        "engine": serving.engine,
        "precision": serving.precision.value,
        "limit_gib": gib(serving.limit_bytes),
        "usd_per_gpu_hour": price and price.usd_per_gpu_hour,
        "price_source": price and price.how,
    }


def fit_inference_text(answer: FitInferenceAnswer) -> str:
    """Head, a table of parts, the verdict, and time."""
    point, serving = answer.point, answer.serving
    names = ["first stage", "last stage"] if point.pipeline_parallel > 1 else ["size"]
    parts = [(name, x[: len(names), 0].tolist()) for name, x in answer.memory.full()]
    return "\n\n".join(
        (
            f"{_serving_text(serving)}\n{_name(point)}",
            parts_table(parts, names),
            f"{ANSWERS[answer.verdict]}: a rank needs {memory_size(point.peak_bytes)} of "
            f"{memory_size(serving.limit_bytes)} (±{percent(MEMORY_BAND)}); {_room(answer)}.",
            f"TTFT {step_time_text(point.ttft_s)}, {step_time_text(point.token_s)} per token, "
            f"{step_time_text(point.latency_s)} for a batch, "
            f"{number_text(_tokens(answer, point), 3)} tokens/s/GPU{_money(answer, point)}.",
            "\n".join(_doubts(answer)),
        )
    )


def _room(answer: FitInferenceAnswer) -> str:
    most = answer.point.largest_batch
    return f"the largest batch is {most:,}" if most else "not even a batch of 1 has room"


def fit_inference_document(answer: FitInferenceAnswer) -> dict[str, Any]:
    """A document; keys in ``_gib`` are of 2^30 bytes, parts are the fuller stage's."""
    fullest = int(answer.memory.total[:, 0].argmax())
    return {
        "schema_version": INFERENCE_SCHEMA_VERSION,
        **_serving_document(answer),
        **rows_documents(POINT_COLUMNS, [answer.point], answer)[0],
        "fits": answer.verdict is not Verdict.NO,
        "verdict": answer.verdict.value,
        "peak_memory_band": MEMORY_BAND,
        "parts_gib": {name: gib(float(sizes[fullest, 0])) for name, sizes in answer.memory.full()},
        "notes": [*_doubts(answer)],
    }
