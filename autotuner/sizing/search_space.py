"""Layouts of a search, by named rules, and their order.

Rules look at columns as in ``cost/layout_rules``: layouts that NeMo cannot run, and layouts that
cannot exist. As for the order, few runs must find the fastest layout although predictions are
wrong, and wrong together for similar layouts. So each point is compared with its strongest rival:
if a similar layout is 5 % faster, the point is hardly better; if a different kind of layout is, it
may well be.
Shapes: P = points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from autoconf_launch.core import GIB, Architecture, Degrees, Layout, divisors

from ..cost import EXPERTS_BAND, STEP_TIME_BAND, Keep, LayoutColumns, LayoutRule
from ..measurement import chance_below
from ..planner import (
    MEMORY,
    NOISE,
    PLAN_RULES,
    SPREADS,
    PointQuestion,
    Points,
    Training,
    likeness,
    points,
)
from ..space import Bools, Floats, Ints

_MESH = ("tp", "pp", "cp")
_MOST = 1000
"""Points that are shown next to each other; the others follow in the planner's order."""
_NINE_OF_TEN = 1.645
"""Standard deviations within which nine of ten normal numbers are."""
_ROUTING_SPREAD = float(np.sqrt(EXPERTS_BAND**2 - STEP_TIME_BAND**2)) / _NINE_OF_TEN
"""Error of sending tokens to experts on other ranks."""


@lru_cache(maxsize=16)
def search_rules(gpus_per_node: int, degrees: Degrees) -> tuple[LayoutRule, ...]:
    """All rules of a search, in the order of their checks.

    Samples that ranks could have whole are cut only if context ranks or micro-batches are listed.
    """
    are_open = degrees.context_parallel is None and degrees.micro_batch is None
    return (
        *PLAN_RULES,
        LayoutRule("pp_stages", "pipeline_C", "pp", "does not split the layers evenly", _stages),
        LayoutRule("vpp_stages", "virtual_C", "vpp", "does not split a stage evenly", _virtual),
        LayoutRule("cp_family", "context_C", "cp", "is for decoders only", _context),
        *([_WHOLE_SAMPLES] if are_open else []),
        _tensor_in_nodes(gpus_per_node),
        *_product_rules(degrees),
    )


def _stages(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """Equal stages; embedding and head may count as a layer each (``are_ends_counted``).

    Of two stacks each has half of the stages, or one stage has both.
    """
    if not a.encoder_layers:
        return np.asarray((a.layers % x.pipeline_C == 0) | ((a.layers + 2) % x.pipeline_C == 0))
    half = np.maximum(x.pipeline_C // 2, 1)
    halves = (x.pipeline_C % 2 == 0) & (a.layers % half == 0) & (a.encoder_layers % half == 0)
    return np.asarray((x.pipeline_C == 1) | halves)


def are_ends_counted(layout: Layout, a: Architecture) -> bool:
    """True if a pipeline is even only with embedding and head as a layer each.

    Megatron-LM calls it ``account_for_embedding_in_pipeline_split`` and
    ``account_for_loss_in_pipeline_split``.
    """
    return not a.encoder_layers and a.layers % layout.pipeline_parallel > 0


def _virtual(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """Megatron-LM interleaves the stages of only one stack.

    Stages that are even without the ends are cut without them, too.
    """
    if a.encoder_layers:
        return np.asarray(x.virtual_C == 1)
    is_even = a.layers % x.pipeline_C == 0
    return np.asarray(~is_even | (a.layers % (x.pipeline_C * x.virtual_C) == 0))


def _context(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """NVIDIA's grids have no context parallelism for BERT and T5 either."""
    is_decoder = a.causal and not a.encoder_layers
    return np.asarray((x.context_C == 1) | is_decoder)


def _samples(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """True unless context parallelism splits samples that its ranks could hold whole.

    Two ranks with two halves of two samples compute the same as with a sample each. Weights and
    tokens of a rank are equal either way, but keys and values travel.
    """
    return np.asarray(np.gcd(x.context_C, x.micro_batch_C) == 1)


_WHOLE_SAMPLES = LayoutRule(
    "cp_samples", "context_C", "cp", "splits samples that its ranks could hold whole", _samples
)


def _tensor_in_nodes(gpus_per_node: int) -> LayoutRule:
    def keep(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
        inside = gpus_per_node % x.tensor_C == 0
        return np.asarray(inside | (x.tensor_C % gpus_per_node == 0))

    why = f"neither divides a node's {gpus_per_node} GPUs nor is a multiple of them"
    return LayoutRule("tp_node", "tensor_C", "tp", why, keep)


def _product_rules(degrees: Degrees) -> Iterator[LayoutRule]:
    least, most = degrees.least_product, degrees.most_product
    if least is not None:
        why = f"x the other degrees is less than min_model_parallel_size {least}"
        yield LayoutRule("min_model_parallel", "tensor_C", "tp", why, _within(least, None))
    if most is not None:
        why = f"x the other degrees is more than max_model_parallel_size {most}"
        yield LayoutRule("max_model_parallel", "tensor_C", "tp", why, _within(None, most))


def _within(least: int | None, most: int | None) -> Keep:
    def keep(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
        product = x.tensor_C * x.pipeline_C * x.context_C * x.expert_C
        enough = product >= (least or 1)
        return np.asarray(enough if most is None else enough & (product <= most))

    return keep


GPUS, GLOBAL_BATCH, EXPERTS, LAYERS = "gpus", "global_batch", "ep_experts", "recompute_layers"


def reason(question: PointQuestion, values: Mapping[str, int]) -> tuple[str, str]:
    """Reason why a question has no layout.

    Args:
        question: restricted to these values.
        values: by their flags.
    """
    a = question.training.workload.architecture
    too_many = LAYERS, f"{_spell(values)} is more than the layers of a stage"
    if values.get("recompute-layers", 0) > (a.layers + a.encoder_layers) // values.get("pp", 1):
        return too_many
    found = points(question)
    if not found.considered:
        return _equation(question, values)
    dropped = {name for name, _ in found.dropped}
    if MEMORY in dropped:
        limit_gib = question.memory_bytes / GIB
        return MEMORY, f"{_spell(values)} needs more than {limit_gib:.0f} GiB of each GPU"
    last = [rule for rule in question.rules if rule.name in dropped]
    return (last[-1].name, _sentence(last[-1], question, values)) if last else too_many


def _equation(question: PointQuestion, values: Mapping[str, int]) -> tuple[str, str]:
    """The equation of mesh and batch that has no solution."""
    degrees = {flag: values[flag] for flag in _MESH if flag in values}
    product = math.prod(degrees.values())
    if question.world % product:
        return GPUS, f"{_spell(degrees)} does not divide {question.world} GPUs"
    workload = question.training.workload
    experts, batch = workload.architecture.experts, workload.global_batch
    if values.get("ep", 1) not in divisors(experts.count if experts else 1):
        has = f"{experts.count} experts" if experts else "a model without experts"
        return EXPERTS, f"ep={values['ep']} does not divide {has}"
    if len(degrees) == len(_MESH):
        samples = f"dp={question.world // product}"
        if "micro-batch" in values:
            samples += f" x micro-batch={values['micro-batch']}"
        return GLOBAL_BATCH, f"{_spell(degrees)}: {samples} does not divide {batch} samples"
    return (
        GLOBAL_BATCH,
        f"{_spell(values)} leaves no data-parallel size on {question.world} GPUs that divides "
        f"{batch} samples",
    )


def _sentence(rule: LayoutRule, question: PointQuestion, values: Mapping[str, int]) -> str:
    a = question.training.workload.architecture
    why = rule.why.format(
        heads=a.heads,
        kv_heads=a.kv_heads,
        ffn=a.ffn,
        layers=a.layers + a.encoder_layers,
        experts=a.experts.count if a.experts else 1,
        sequence=question.training.workload.sequence_length,
        pp=values.get("pp", "any"),
        accumulation="another number",
        ranks="the",
    )
    if rule.flag in values:
        others = {flag: value for flag, value in values.items() if flag != rule.flag}
        beside = f" (beside {_spell(others)})" if others else ""
        return f"{rule.flag}={values[rule.flag]} {why}{beside}"
    return f"{_spell(values)}: {rule.flag} {why}"


def _spell(values: Mapping[str, int]) -> str:
    return " ".join(f"{flag}={value}" for flag, value in values.items())


def run_order(found: Points, training: Training) -> Ints:
    """Numbers of the points in the order of their runs.

    The planner's first point is first, then the points likeliest to be the fastest of all
    (``plausible_order``). Layouts whose tensor-parallel ranks are on several nodes come after all
    others, unless the first is such a layout: Narayanan et al. 2021 (section 3.2, takeaway 1) and
    NVIDIA's grids keep them within a node, and the only such published row is twice as slow as
    eight ranks in a node (vTrain, 18.4B on 256 GPUs).
    """
    if found.rows is None:
        return np.zeros(0, np.int64)
    crosses_P = found.rows.tensor_C > training.machine.gpus_per_node
    if crosses_P[0]:
        crosses_P[:] = False
    parts = [np.flatnonzero(~crosses_P), np.flatnonzero(crosses_P)]
    return np.concatenate([_part(found, part, training.workload.architecture) for part in parts])


def _part(found: Points, numbers: Ints, architecture: Architecture) -> Ints:
    """Some points, given as the planner has them, in their order."""
    if found.rows is None or not len(numbers):
        return numbers
    few = numbers[:_MOST]
    alike = error_covariance(found.rows.take(few), architecture)
    order = plausible_order(np.log(found.step_s_P[few]), found.chance_P[few], alike)
    return np.concatenate([few[order], numbers[_MOST:]])


def plausible_order(log_s_P: Floats, chance_P: Floats, covariance_PP: Floats) -> Ints:
    """Numbers of points given in the planner's order, its first point first.

    A point's worth is its chance to fit and to be faster than its strongest rival; a rival that
    may not fit counts less.

    Args:
        log_s_P: logarithm of the predicted seconds.
        chance_P: to fit into memory.
        covariance_PP: of the errors of ``log_s_P``.
    """
    own_P = np.diag(covariance_PP)
    apart_PP = own_P[:, None] + own_P[None, :] - 2.0 * covariance_PP
    np.fill_diagonal(apart_PP, 1.0)
    slower_PP = (log_s_P[:, None] - log_s_P[None, :]) / np.sqrt(apart_PP)
    np.fill_diagonal(slower_PP, -np.inf)
    stands_PP = 1.0 - chance_P[None, :] * (1.0 - chance_below(-slower_PP))
    worth_P = chance_P * stands_PP.min(axis=1)
    worth_P[0] = np.inf
    return np.argsort(-worth_P, kind="stable")


def error_covariance(rows: LayoutColumns, architecture: Architecture) -> Floats:
    """Covariance of the log errors of one model's predicted times on one number of machines.

    The spreads come from the published tables (``cost.model.calibration``).
    """
    count = len(rows)
    same, shapes = np.zeros(count, np.int64), np.full((count, 2), float(architecture.hidden))
    alike = likeness(rows, same, rows.expert_C, shapes, np.full(count, np.iinfo(np.int64).max))
    shared = np.tensordot(np.square(SPREADS), alike.covariances(np.arange(count)), axes=1)
    if architecture.experts is not None:
        travel = rows.expert_C > 1
        shared += _ROUTING_SPREAD**2 * (travel[:, None] == travel[None, :])
    return np.asarray(shared + NOISE**2 * np.eye(count))
