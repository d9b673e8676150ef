"""One true sentence on why ``plan`` has no layout, and what would help. Not: the search itself."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.planner import Plan, Planned, Question, name_of
from autoconf_launch.autotuner.planner import plan as planned
from autoconf_launch.tuning_spaces import MOST_GPUS, accelerator_names, usable_bytes

from ..estimates import PlanAnswer
from .cells import duration_text, memory_size

_MOST_DOUBLINGS = 6


def why_nothing(question: Question, answer: PlanAnswer) -> str:
    """What was asked for that no layout gives: rules, memory, or limits of time and money."""
    found = answer.plan
    if not found.valid:
        name, count = max(found.rejected, key=lambda one: one[1])
        return (
            f"none of {found.considered:,} layouts obeys all rules; the most, {count:,}, break "
            f"{name}: take another number of GPUs or global batch."
        )
    if found.smallest is not None:
        return _too_large(question, found, found.smallest)
    assert found.fastest is not None
    return _too_late(answer, found.fastest)


def _too_large(question: Question, found: Plan, smallest: Planned) -> str:
    needed, limit = smallest.peak_bytes, question.limits.memory_bytes
    helps = [text for text in (_more_nodes(question), _larger(smallest.peak_bytes)) if text]
    return (
        f"none of {found.valid:,} valid layouts fits: the smallest need is "
        f"{memory_size(needed)} of {memory_size(limit)} a GPU "
        f"({name_of(smallest.layout)}); it would fit "
        f"{' or '.join(helps) or 'on no number or kind of GPU that we know'}."
    )


def _more_nodes(question: Question) -> str:
    """How many nodes would do, by planning for twice as many again and again."""
    node = question.training.machine.gpus_per_node
    for doubling in range(1, _MOST_DOUBLINGS + 1):
        world = question.world << doubling
        if world > MOST_GPUS:
            break
        if planned(replace(question, world=world, most=1)).best:
            return f"on {world // node} nodes like these"
    return ""


def _larger(needed_bytes: float) -> str:
    """The known GPU that has least memory beyond the need."""
    sizes = sorted((usable_bytes(gpu), gpu) for gpu in accelerator_names())
    return next((f"on {gpu}" for size, gpu in sizes if size >= needed_bytes), "")


def _too_late(answer: PlanAnswer, fastest: Planned) -> str:
    assert answer.steps is not None
    request, total_s = answer.request, fastest.step_s * answer.steps
    limits = []
    if request.deadline_s is not None and total_s > request.deadline_s:
        limits.append(f"the deadline is {duration_text(request.deadline_s)}")
    text = f"takes {duration_text(total_s)}"
    if answer.price is not None:
        gpu_hours = len(answer.cluster.devices) * total_s / 3600
        usd = gpu_hours * answer.price.usd_per_gpu_hour
        text += f" and costs ${usd:,.0f}"
        if request.max_cost_usd is not None and usd > request.max_cost_usd:
            limits.append(f"--max-cost is ${request.max_cost_usd:,.0f}")
    return (
        f"no layout is within the limits: the fastest that fits {text} for all tokens, but "
        f"{' and '.join(limits)}; other numbers or kinds of GPUs may do."
    )
