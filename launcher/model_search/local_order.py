"""Which candidates of this machine promise most, once a profile run has looked at the model.

Not: which there are (this_machine).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.planner import predict
from autoconf_launch.autotuner.table import CandidateTable
from autoconf_launch.core import Candidate, ClusterSpec, ModelSpec

from .candidates import SearchCandidate
from .this_machine import with_zero

_STAGES = (0, 1, 2, 3)
_UNKNOWN_S = math.inf


def ordered(
    found: tuple[SearchCandidate, ...],
    as_candidate: Callable[[SearchCandidate], Candidate],
    spec: ModelSpec | None,
    cluster: ClusterSpec,
    facts: TrainingFacts,
) -> tuple[SearchCandidate, ...]:
    """Each with its best ZeRO stage, the fastest predicted one that fits first.

    As they were where nothing can be predicted; the smallest micro-batch first where memory alone
    can, since then not even two samples had room in the profile run.
    """
    if spec is None:
        return found
    stages = _STAGES if len(cluster.devices) > 1 else (0,)
    variants = [with_zero(one, stage) for one in found for stage in stages]
    table = CandidateTable.from_candidates([as_candidate(one) for one in variants])
    told = predict(table, spec, cluster, facts)
    priced = [
        replace(one, step_s=_known(told.step_s_C[row]), peak_bytes=_known(told.peak_bytes_C[row]))
        for row, one in enumerate(variants)
    ]
    limit = cluster.least_memory_bytes
    best = [
        min(priced[first : first + len(stages)], key=lambda one: _rank(one, limit))
        for first in range(0, len(priced), len(stages))
    ]
    return tuple(sorted(best, key=lambda one: _rank(one, limit)))


def _rank(one: SearchCandidate, limit_bytes: float) -> tuple[bool, float, int, int]:
    is_large = one.peak_bytes is not None and one.peak_bytes > limit_bytes
    sample_s = _UNKNOWN_S if one.step_s is None else one.step_s / one.layout.global_batch
    value = one.peak_bytes or 0.0 if is_large else sample_s
    samples = one.layout.micro_batch if one.step_s is None else 0
    return (is_large, value, samples, one.layout.zero_stage)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
