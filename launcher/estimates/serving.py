"""Questions on text generation with their names resolved, and their answers as values."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.autotuner.cost import MemoryParts, Verdict, verdict
from autoconf_launch.autotuner.inference import (
    Generation,
    InferencePlan,
    InferencePoint,
    InferenceQuestion,
    PointColumns,
    engine_habits,
    generation_bands,
    generation_memory,
    priced_points,
    rank_points,
    why_no_generation,
    why_not_degrees,
)
from autoconf_launch.core import Architecture, ClusterSpec, ConfigError, Precision

from ..asked import (
    FitInferenceQuestion,
    PlanInferenceQuestion,
    ServingPoint,
    ServingPoints,
    ServingQuestion,
)
from ..machine import is_cpu
from .clusters import (
    ChosenPrice,
    check_precision,
    choose_cluster,
    choose_price,
    limit_memory,
    machine_of,
    require_equal_nodes,
    require_rates,
)
from .models import model_of_flags
from .resolve import same_values

INFERENCE = "--inference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A model, its texts and its machines.

    Attributes:
        limit_bytes: memory of each GPU.
        engine: a name of ``ENGINE_HABITS``.
        usd_per_gpu_hour: None: our price.
    """

    model: Architecture
    cluster: ClusterSpec
    limit_bytes: int
    input_len: int
    output_len: int
    precision: Precision
    engine: str
    usd_per_gpu_hour: float | None


@dataclass(frozen=True, kw_only=True)
class FitInferenceRequest(ServingPoint):
    """A point of a serving: ranks and batch."""

    serving: Serving
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanInferenceRequest(ServingPoints):
    """A ranking of a serving's points; empty ``tp``, ``pp`` or ``batch`` means all."""

    serving: Serving
    json: bool = False

    @property
    def is_bounded(self) -> bool:
        return math.isfinite(self.max_latency_ms)


def fit_inference_request(asked: FitInferenceQuestion) -> FitInferenceRequest:
    """A question with its names resolved."""
    return FitInferenceRequest(serving=_serving(asked), **same_values(asked, FitInferenceRequest))


def plan_inference_request(asked: PlanInferenceQuestion) -> PlanInferenceRequest:
    """A question with its names resolved, each size once and in order."""
    same = same_values(asked, PlanInferenceRequest)
    same |= {name: tuple(sorted(set(same[name]))) for name in ("tp", "pp", "batch")}
    return PlanInferenceRequest(serving=_serving(asked), **same)


def _serving(asked: ServingQuestion) -> Serving:
    cluster = choose_cluster(asked.cluster)
    return Serving(
        model=model_of_flags(asked.model, asked.shapes or {}),
        cluster=cluster,
        limit_bytes=limit_memory(asked.memory_bytes, cluster),
        input_len=asked.input_len,
        output_len=asked.output_len,
        precision=Precision(asked.precision),
        engine=asked.engine,
        usd_per_gpu_hour=asked.usd_per_gpu_hour,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInferenceAnswer:
    """The answer that all forms show; ``seconds`` is the duration of enumerating and pricing."""

    request: PlanInferenceRequest
    plan: InferencePlan
    price: ChosenPrice | None
    seconds: float

    @property
    def serving(self) -> Serving:
        return self.request.serving

    @property
    def recommended(self) -> InferencePoint | None:
        """The most throughput per GPU within the bound, or the quickest near it without a bound.

        None if no point is within it.
        """
        return self.plan.best[0] if self.plan.within else None

    @property
    def rows(self) -> tuple[InferencePoint, ...]:
        """Points that are shown."""
        return self.plan.front if self.request.pareto else self.plan.best[: self.request.top]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitInferenceAnswer:
    """All that the forms of the report say; ``memory`` has the first and the last stage."""

    request: FitInferenceRequest
    point: InferencePoint
    memory: MemoryParts
    verdict: Verdict
    price: ChosenPrice | None

    @property
    def serving(self) -> Serving:
        return self.request.serving


def plan_inference_answer(request: PlanInferenceRequest) -> PlanInferenceAnswer:
    """Rank.

    Raises:
        ConfigError: unequal nodes, a model that generates no text of these lengths, a size that
            divides neither heads nor layers, or a precision that a GPU does not compute in.
    """
    serving = request.serving
    started = time.perf_counter()
    question = _question(
        serving,
        limit_bytes=serving.limit_bytes * (1.0 - request.headroom),
        tensor=tuple(request.tp),
        pipeline=tuple(request.pp),
        batches=tuple(request.batch),
        max_latency_s=request.max_latency_ms / 1e3,
    )
    for tensor in request.tp:
        _require_degrees(tensor, 1, question)
    for pipeline in request.pp:
        _require_degrees(1, pipeline, question)
    if request.tp and request.pp:
        _require_degrees(min(request.tp), min(request.pp), question)
    ranked = rank_points(question)
    return PlanInferenceAnswer(
        request=request,
        plan=ranked if request.is_bounded else _quickest_first(ranked, serving),
        price=choose_price(serving.usd_per_gpu_hour, serving.cluster),
        seconds=time.perf_counter() - started,
    )


def throughput_band(point: InferencePoint, serving: Serving) -> float:
    """Relative error of a point's throughput, from the errors of its latency's parts."""
    ttft, token = generation_bands(serving.model)
    share = min(1.0, point.ttft_s / point.latency_s)
    return share * ttft + (1.0 - share) * token


def near_most(plan: InferencePlan, serving: Serving) -> tuple[InferencePoint, ...]:
    """Points whose throughput is within the error band of the highest one."""
    most = max(plan.best, key=lambda one: one.samples_per_s_per_gpu)
    least = most.samples_per_s_per_gpu / (1.0 + throughput_band(most, serving))
    return tuple(one for one in plan.best if one.samples_per_s_per_gpu >= least)


def _quickest_first(plan: InferencePlan, serving: Serving) -> InferencePlan:
    """Put the lowest latency near the most throughput before all others."""
    if not plan.within:
        return plan
    quickest = min(near_most(plan, serving), key=lambda one: one.latency_s)
    others = (one for one in plan.best if one is not quickest)
    return replace(plan, best=(quickest, *others))


def fit_inference_answer(request: FitInferenceRequest) -> FitInferenceAnswer:
    """Predict one point.

    Raises:
        ConfigError: as for a plan.
    """
    serving = request.serving
    question = _question(serving, limit_bytes=float(serving.limit_bytes))
    _require_degrees(request.tp, request.pp, question)
    (point,) = priced_points(question, [(request.tp, request.pp, request.batch)])
    columns = PointColumns(
        tensor_C=np.array([request.tp]),
        pipeline_C=np.array([request.pp]),
        batch_C=np.array([request.batch]),
    )
    memory = generation_memory(
        columns, question.generation, question.engine, on_cpu=is_cpu(serving.cluster)
    )
    return FitInferenceAnswer(
        request=request,
        point=point,
        memory=memory,
        verdict=verdict(point.peak_bytes, serving.limit_bytes),
        price=choose_price(serving.usd_per_gpu_hour, serving.cluster),
    )


def _question(
    serving: Serving,
    *,
    limit_bytes: float,
    tensor: tuple[int, ...] = (),
    pipeline: tuple[int, ...] = (),
    batches: tuple[int, ...] = (),
    max_latency_s: float = np.inf,
) -> InferenceQuestion:
    require_equal_nodes(serving.cluster)
    require_rates(serving.cluster)
    check_precision(serving.precision, serving.cluster)
    generation = Generation(
        model=serving.model,
        input_tokens=serving.input_len,
        output_tokens=serving.output_len,
        precision=serving.precision,
    )
    if why := why_no_generation(generation):
        raise ConfigError(why)
    return InferenceQuestion(
        generation=generation,
        machine=machine_of(serving.cluster),
        engine=engine_habits(serving.engine),
        world=len(serving.cluster.devices),
        limit_bytes=limit_bytes,
        tensor=tensor,
        pipeline=pipeline,
        batches=batches,
        max_latency_s=max_latency_s,
    )


def _require_degrees(tensor: int, pipeline: int, question: InferenceQuestion) -> None:
    if why := why_not_degrees(tensor, pipeline, question.generation, question.engine):
        raise ConfigError(f"--{why}")
    if tensor * pipeline > question.world:
        raise ConfigError(
            f"--tp {tensor} x --pp {pipeline} needs {tensor * pipeline} GPUs, but --cluster has "
            f"{question.world}; give fewer, or a larger cluster."
        )
