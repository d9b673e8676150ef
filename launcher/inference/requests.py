"""Questions on text generation whose names are resolved."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoconf_launch.core import Architecture, ClusterSpec, Precision

from ..asked import (
    FitInferenceQuestion,
    PlanInferenceQuestion,
    ServingPoint,
    ServingPoints,
    ServingQuestion,
)
from ..estimates import choose_cluster, limit_memory, model_of_flags, same_values

INFERENCE = "--inference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What generates what, and on which machines.

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
    """One point of a serving."""

    serving: Serving
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanInferenceRequest(ServingPoints):
    """How the points of a serving are ranked; ``tp``, ``pp`` and ``batch`` are empty for all."""

    serving: Serving
    json: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether the latency has a bound."""
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
