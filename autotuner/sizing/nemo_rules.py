"""What NeMo cannot run beside what no layout can be, as named rules. Not: what is slow.

Rules look at columns as those of ``cost/layout_rules`` do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from autoconf_launch.core import Architecture, Degrees, Layout

from ..cost import Keep, LayoutColumns, LayoutRule
from ..planner import MEMORY, PLAN_RULES, PointQuestion, divisors, points
from ..space import Bools


def search_rules(gpus_per_node: int, degrees: Degrees) -> tuple[LayoutRule, ...]:
    """All rules of a search, in the order in which they are asked.

    Samples that ranks could have whole are cut only where context ranks or micro-batches are
    listed.
    """
    are_open = degrees.context_parallel is None and degrees.micro_batch is None
    return (
        *PLAN_RULES,
        _rule("pp_stages", "pipeline_C", "pp", "does not split the layers evenly", _stages),
        _rule("vpp_stages", "virtual_C", "vpp", "does not split a stage evenly", _virtual),
        _rule("cp_family", "context_C", "cp", "is for decoders only", _context),
        *([_WHOLE_SAMPLES] if are_open else []),
        _tensor_in_nodes(gpus_per_node),
        *_product_rules(degrees),
    )


def _rule(name: str, knob: str, flag: str, why: str, keep: Keep) -> LayoutRule:
    return LayoutRule(name=name, knob=knob, flag=flag, why=why, keep=keep)


def _stages(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """Equal stages, where embedding and head may count as a layer each (``are_ends_counted``).

    Of two stacks each has half of the stages, or one stage has both.
    """
    if not a.encoder_layers:
        return np.asarray((a.layers % x.pipeline_C == 0) | ((a.layers + 2) % x.pipeline_C == 0))
    half = np.maximum(x.pipeline_C // 2, 1)
    halves = (x.pipeline_C % 2 == 0) & (a.layers % half == 0) & (a.encoder_layers % half == 0)
    return np.asarray((x.pipeline_C == 1) | halves)


def are_ends_counted(layout: Layout, a: Architecture) -> bool:
    """Whether a pipeline is even only with embedding and head as a layer each.

    Megatron-LM calls it ``account_for_embedding_in_pipeline_split`` and
    ``account_for_loss_in_pipeline_split``.
    """
    return not a.encoder_layers and a.layers % layout.pipeline_parallel > 0


def _virtual(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """Megatron-LM interleaves the stages of one stack alone.

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
    """Two ranks with two halves of two samples compute what they would with one sample each.

    The same weights and tokens stand on each rank either way, but keys and values travel.
    """
    return np.asarray(np.gcd(x.context_C, x.micro_batch_C) == 1)


_WHOLE_SAMPLES = _rule(
    "cp_samples", "context_C", "cp", "splits samples that its ranks could hold whole", _samples
)


def _tensor_in_nodes(gpus_per_node: int) -> LayoutRule:
    def keep(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
        inside = gpus_per_node % x.tensor_C == 0
        return np.asarray(inside | (x.tensor_C % gpus_per_node == 0))

    why = f"neither divides a node's {gpus_per_node} GPUs nor is a multiple of them"
    return _rule("tp_node", "tensor_C", "tp", why, keep)


def _product_rules(degrees: Degrees) -> Iterator[LayoutRule]:
    least, most = degrees.least_product, degrees.most_product
    if least is not None:
        why = f"x the other degrees is less than min_model_parallel_size {least}"
        yield _rule("min_model_parallel", "tensor_C", "tp", why, _within(least, None))
    if most is not None:
        why = f"x the other degrees is more than max_model_parallel_size {most}"
        yield _rule("max_model_parallel", "tensor_C", "tp", why, _within(None, most))


def _within(least: int | None, most: int | None) -> Keep:
    def keep(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
        product = x.tensor_C * x.pipeline_C * x.context_C * x.expert_C
        enough = product >= (least or 1)
        return np.asarray(enough if most is None else enough & (product <= most))

    return keep


GPUS, GLOBAL_BATCH, EXPERTS, LAYERS = "gpus", "global_batch", "ep_experts", "recompute_layers"
_MESH = ("tp", "pp", "cp")


def reason(question: PointQuestion, values: Mapping[str, int]) -> tuple[str, str]:
    """What rules out the last layout of a question that has none.

    Args:
        question: about these values alone.
        values: by their flags.
    """
    a = question.training.workload.architecture
    too_many = LAYERS, f"{_spelled(values)} is more than the layers of a stage"
    if values.get("recompute-layers", 0) > (a.layers + a.encoder_layers) // values.get("pp", 1):
        return too_many
    found = points(question)
    if not found.considered:
        return _equation(question, values)
    dropped = {name for name, _ in found.dropped}
    if MEMORY in dropped:
        limit_gib = question.memory_bytes / 2**30
        return MEMORY, f"{_spelled(values)} needs more than {limit_gib:.0f} GiB of each GPU"
    last = [rule for rule in question.rules if rule.name in dropped]
    return (last[-1].name, _sentence(last[-1], question, values)) if last else too_many


def _equation(question: PointQuestion, values: Mapping[str, int]) -> tuple[str, str]:
    """Which equation of mesh and batch has no solution."""
    degrees = {flag: values[flag] for flag in _MESH if flag in values}
    product = math.prod(degrees.values())
    if question.world % product:
        return GPUS, f"{_spelled(degrees)} does not divide {question.world} GPUs"
    experts = question.training.workload.architecture.experts
    if values.get("ep", 1) not in divisors(experts.count if experts else 1):
        has = f"{experts.count} experts" if experts else "a model without experts"
        return EXPERTS, f"ep={values['ep']} does not divide {has}"
    batch = question.global_batch
    if len(degrees) == len(_MESH):
        samples = f"dp={question.world // product}"
        if "micro-batch" in values:
            samples += f" x micro-batch={values['micro-batch']}"
        return GLOBAL_BATCH, f"{_spelled(degrees)}: {samples} does not divide {batch} samples"
    return (
        GLOBAL_BATCH,
        f"{_spelled(values)} leaves no data-parallel size on {question.world} GPUs that divides "
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
        beside = f" (beside {_spelled(others)})" if others else ""
        return f"{rule.flag}={values[rule.flag]} {why}{beside}"
    return f"{_spelled(values)}: {rule.flag} {why}"


def _spelled(values: Mapping[str, int]) -> str:
    return " ".join(f"{flag}={value}" for flag, value in values.items())
