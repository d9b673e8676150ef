"""Layouts to use first: those that run and were checked; others lead only beyond their band."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice

from autoconf_launch.core import Optimizer, Workload

from ..cost import verdict
from .bands import planned_band
from .search import Plan, Planned, Question, plan


def plan_usable_first(question: Question) -> Plan:
    """A plan whose first row is one to use.

    A layout that stands apart is among the best only if it leads those that do not, whatever
    memory they leave free, by more than its error band, or where all layouts stand apart. Of the
    others ``apart`` has those that are faster than the first row.
    """
    found = plan(question)
    if not found.best:
        return replace(found, best=found.apart, apart=(), are_all_apart=bool(found.apart))
    to_beat_s = min(one.step_s for one in (found.best[0], found.tightest or found.best[0]))

    def leads(one: Planned) -> bool:
        error = planned_band(question.training, one).error if one.step_s < to_beat_s else 0.0
        return one.step_s * (1.0 + error) < to_beat_s

    tier = _tier(found.best[0], question)
    roomy = [one for one in found.apart if _tier(one, question) <= tier]
    lead = [one for one in roomy if leads(one)]
    first_s = (*lead, *found.best)[0].step_s
    faster = [one for one in roomy if one.step_s < first_s and not leads(one)]
    best = [*lead, *found.best]
    if question.most is None:
        shown = {id(one) for one in (*lead, *faster)}
        slower = [one for one in found.apart if id(one) not in shown]
        best = [*lead, *merge(found.best, slower, key=lambda one: _order(one, question))]
    return replace(found, best=tuple(best[: question.most]), apart=tuple(faster))


def _tier(one: Planned, question: Question) -> int:
    """0 with the headroom, 1 within the memory, 2 beyond it."""
    limits = question.limits
    if limits.headroom is None:
        return 0
    return (one.peak_bytes > limits.safe_bytes) + (one.peak_bytes > limits.memory_bytes)


def _order(one: Planned, question: Question) -> tuple[int, float]:
    return _tier(one, question), one.step_s


LIKELY_RANK = 16
"""Rank of the adapters that are proposed: that of most published fine-tunings (recalled)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestChange:
    """A training near the one that was asked for, and the best layout for it.

    Attributes:
        question: with the workload or the machines that were changed.
        planned: the layout.
    """

    question: Question
    planned: Planned


def nearest_changes(
    same: Iterable[Question], larger: Iterable[Question]
) -> tuple[NearestChange, ...]:
    """The changes that have a layout which leaves the headroom free and stands not apart.

    Args:
        same: of other trainings on the same machines, each of which is tried.
        larger: of the same training on more and more GPUs, up to the first that has one.
    """
    return (*_with_layouts(same), *islice(_with_layouts(larger), 1))


def _with_layouts(questions: Iterable[Question]) -> Iterator[NearestChange]:
    for one in questions:
        rules = (*one.rules, *one.apart_rules)
        safe = replace(one.limits, memory_bytes=one.limits.safe_bytes, headroom=0.0)
        open_ = replace(one, rules=rules, apart_rules=(), most=1, one_each=False)
        for planned in plan(replace(open_, limits=safe)).best:
            real = verdict(planned.peak_bytes, one.limits.memory_bytes)
            yield NearestChange(question=open_, planned=replace(planned, verdict=real))


def lighter_trainings(workload: Workload) -> Iterator[Workload]:
    """The same training with 8-bit states of its optimizer, and of adapters alone."""
    light = {"adam": "adam8bit", "adamw": "adamw8bit"}.get(workload.optimizer.name or "")
    if light is not None and workload.lora_rank is None:
        yield replace(workload, optimizer=Optimizer.from_name(light))
    if workload.lora_rank is None:
        yield replace(workload, lora_rank=LIKELY_RANK)
