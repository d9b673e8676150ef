"""The answers of ``plan --inference`` and ``fit --inference`` as text and as documents."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from autoconf_launch.autotuner.cost import MEMORY_BAND, Verdict, parameters
from autoconf_launch.autotuner.inference import (
    ENGINE_HABITS,
    InferencePoint,
    generation_bands,
)
from autoconf_launch.core import plural

from ..estimates import ChosenPrice
from ..machine import is_cpu
from ..report import (
    ANSWERS,
    count_text,
    dense_table,
    gib,
    memory_size,
    memory_unit,
    number_text,
    percent,
    step_time_text,
    table_of,
)
from .answers import FitInferenceAnswer, PlanInferenceAnswer, near_most
from .requests import Serving

INFERENCE_SCHEMA_VERSION = 1
_LEAST_SHOWN = 0.005
"""Parts of fewer units of a table would be written as 0.00."""


def plan_inference_text(answer: PlanInferenceAnswer) -> str:
    """Head, the recommendation, the ranking, and notes on its numbers."""
    blocks = [_headline(answer)]
    if answer.recommended is not None:
        blocks.append(_recommendation(answer, answer.recommended))
    if answer.rows:
        blocks += [_ranking(answer), "\n".join(_notes(answer))]
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
    copies = _copies(answer.serving, point)
    tokens = point.samples_per_s_per_gpu * answer.serving.output_len * point.gpus * copies
    money = _money(answer.usd_per_million_tokens(point))
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


def _money(usd: float | None) -> str:
    return "" if usd is None else f", ${number_text(usd, 3)} per million output tokens"


def _name(point: InferencePoint) -> str:
    return f"tp {point.tensor_parallel}, pp {point.pipeline_parallel}, batch {point.batch}"


def _copies(serving: Serving, point: InferencePoint) -> int:
    """How often the model runs on the cluster."""
    return max(1, len(serving.cluster.devices) // point.gpus)


def _ranking(answer: PlanInferenceAnswer) -> str:
    rows = [_cells(rank, answer, point) for rank, point in enumerate(answer.rows, start=1)]
    names = [name for name in rows[0] if any(row[name] != "-" for row in rows)]
    cells = [[row[name] for name in names] for row in rows]
    return dense_table(cells, names, ["right"] * len(names))


def _cells(rank: int, answer: PlanInferenceAnswer, point: InferencePoint) -> dict[str, str]:
    usd = answer.usd_per_million_tokens(point)
    tokens_per_s = point.samples_per_s_per_gpu * answer.serving.output_len
    is_late = point.latency_s * 1e3 > answer.request.max_latency_ms
    return {
        "#": str(rank),
        "tp": str(point.tensor_parallel),
        "pp": str(point.pipeline_parallel),
        "batch": str(point.batch),
        "TTFT": step_time_text(point.ttft_s),
        "per token": step_time_text(point.token_s),
        "latency": step_time_text(point.latency_s),
        "tokens/s/user": number_text(1.0 / point.token_s, 3),
        "tokens/s/GPU": number_text(tokens_per_s, 3),
        "memory": memory_size(point.peak_bytes),
        "largest batch": f"{point.largest_batch:,}",
        "$/M tokens": "-" if usd is None else number_text(usd, 3),
        "over the bound": "yes" if is_late else "-",
    }


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
    yield _doubt(answer.serving)
    yield from _price(answer.serving, answer.price)


def _price(serving: Serving, price: ChosenPrice | None) -> Iterator[str]:
    if price is not None:
        yield f"Price: ${price.usd_per_gpu_hour:.2f} per GPU hour ({price.how})."
    elif not is_cpu(serving.cluster):
        yield "No price of this GPU is known; give one with --usd-per-gpu-hour."


def _doubt(serving: Serving) -> str:
    if is_cpu(serving.cluster):
        return (
            "Times on a CPU are rough: they follow from a matrix product and a copy measured here "
            "just now."
        )
    ttft, token = generation_bands(serving.model)
    return (
        f"90 % error bands from measured kernels: TTFT ±{percent(ttft)}, time per token "
        f"±{percent(token)}; how long requests wait for a batch is not included."
    )


def plan_inference_document(answer: PlanInferenceAnswer) -> dict[str, Any]:
    """A document; ``recommended`` is None where no point is within the bound."""
    plan, request = answer.plan, answer.request
    bound, (ttft, token) = request.max_latency_ms, generation_bands(answer.serving.model)
    document: dict[str, Any] = {
        "schema_version": INFERENCE_SCHEMA_VERSION,
        **_serving_document(answer.serving),
        "considered": plan.considered,
        "fit": plan.fit,
        "within": plan.within,
        "max_latency_ms": bound if math.isfinite(bound) else None,
        "headroom": request.headroom,
        "seconds": answer.seconds,
        "ttft_band": ttft,
        "token_time_band": token,
        "recommended": None,
        "best": [_point_document(answer, one) for one in plan.best[: request.top]],
    }
    if answer.recommended is not None:
        document["recommended"] = _point_document(answer, answer.recommended)
    if request.pareto:
        document["front"] = [_point_document(answer, one) for one in plan.front]
    return document


def _serving_document(serving: Serving) -> dict[str, Any]:
    return {
        "model": serving.model.name,
        "parameters": parameters(serving.model),
        "input_len": serving.input_len,
        "output_len": serving.output_len,
        "engine": serving.engine,
        "precision": serving.precision.value,
        "limit_gib": gib(serving.limit_bytes),
    }


def _point_document(answer: PlanInferenceAnswer, point: InferencePoint) -> dict[str, Any]:
    return {
        **_numbers(point, answer.serving),
        "copies": _copies(answer.serving, point),
        "usd_per_million_tokens": answer.usd_per_million_tokens(point),
    }


def _numbers(point: InferencePoint, serving: Serving) -> dict[str, Any]:
    return {
        "tensor_parallel": point.tensor_parallel,
        "pipeline_parallel": point.pipeline_parallel,
        "batch": point.batch,
        "ttft_s": point.ttft_s,
        "token_s": point.token_s,
        "latency_s": point.latency_s,
        "samples_per_s_per_gpu": point.samples_per_s_per_gpu,
        "tokens_per_s_per_gpu": point.samples_per_s_per_gpu * serving.output_len,
        "peak_memory_gib": gib(point.peak_bytes),
        "largest_batch": point.largest_batch,
    }


def fit_inference_text(answer: FitInferenceAnswer) -> str:
    """Head, a table of parts, the verdict, and time."""
    point, serving = answer.point, answer.request.serving
    limit = memory_size(serving.limit_bytes)
    tokens_per_s = point.samples_per_s_per_gpu * serving.output_len
    money = _money(answer.usd_per_million_tokens)
    return "\n\n".join(
        (
            f"{_serving_text(serving)}\n{_name(point)}",
            _parts_table(answer),
            f"{ANSWERS[answer.verdict]}: a rank needs {memory_size(point.peak_bytes)} of {limit} "
            f"(±{percent(MEMORY_BAND)}); {_room(answer)}.",
            f"TTFT {step_time_text(point.ttft_s)}, {step_time_text(point.token_s)} per token, "
            f"{step_time_text(point.latency_s)} for a batch, {number_text(tokens_per_s, 3)} "
            f"tokens/s/GPU{money}.",
            "\n".join((_doubt(serving), *_price(serving, answer.price))),
        )
    )


def _room(answer: FitInferenceAnswer) -> str:
    most = answer.point.largest_batch
    return f"the largest batch is {most:,}" if most else "not even a batch of 1 has room"


def _parts_table(answer: FitInferenceAnswer) -> str:
    parts = [(name, sizes[:, 0].tolist()) for name, sizes in answer.memory.full()]
    sums = [sum(column) for column in zip(*(sizes for _, sizes in parts), strict=True)]
    unit_name, unit = memory_unit(max(sums))
    stages = ["first stage", "last stage"]
    if answer.point.pipeline_parallel == 1:
        stages = ["size"]
    rows = [
        [name, *(f"{size / unit:.2f}" for size in sizes[: len(stages)])]
        for name, sizes in [*parts, ("sum", sums)]
        if max(sizes) >= _LEAST_SHOWN * unit
    ]
    headers = [f"{unit_name} of a rank", *stages]
    return table_of(rows, headers, ["left", *("right" for _ in stages)])


def fit_inference_document(answer: FitInferenceAnswer) -> dict[str, Any]:
    """A document; keys in ``_gib`` are of 2^30 bytes, parts those of the fuller stage."""
    fullest = int(answer.memory.total[:, 0].argmax())
    return {
        "schema_version": INFERENCE_SCHEMA_VERSION,
        **_serving_document(answer.request.serving),
        **_numbers(answer.point, answer.request.serving),
        "fits": answer.verdict is not Verdict.NO,
        "verdict": answer.verdict.value,
        "peak_memory_band": MEMORY_BAND,
        "usd_per_million_tokens": answer.usd_per_million_tokens,
        "parts_gib": {name: gib(float(sizes[fullest, 0])) for name, sizes in answer.memory.full()},
    }
