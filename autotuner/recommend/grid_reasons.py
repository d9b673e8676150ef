"""Why a search has no run with some values, as a rule's name and a sentence. Not: the rules."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..cost.layout_rules import LayoutRule
from ..layouts.choices import divisors
from ..layouts.points import MEMORY, PointQuestion, points

GPUS, GLOBAL_BATCH, EXPERTS, LAYERS = "gpus", "global_batch", "ep_experts", "recompute_layers"
_MESH = ("tp", "pp", "cp")


def reason(question: PointQuestion, values: Mapping[str, int]) -> tuple[str, str]:
    """What rules out the last layout of a question that has none.

    Args:
        question: about these values alone.
        values: by their flags.
    """
    a = question.training.architecture
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
    experts = question.training.architecture.experts
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
    a = question.training.architecture
    why = rule.why.format(
        heads=a.heads,
        kv_heads=a.kv_heads,
        ffn=a.ffn,
        layers=a.layers + a.encoder_layers,
        experts=a.experts.count if a.experts else 1,
        sequence=question.training.setup.sequence,
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
