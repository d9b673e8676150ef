"""Layouts to use first: those that run and were checked; others lead only beyond their band."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from typing import Protocol, TypeVar

from autoconf_launch.core import Degrees, Offload, Optimizer, WeightFormat, Workload

from ..cost import LayoutRule
from .bands import planned_band
from .layout_family import least_lead
from .search import Plan, Planned, Question, plan

_SHORTEST = 256
"""Tokens below which samples are not cut."""


class _HasStep(Protocol):
    @property
    def step_s(self) -> float: ...


_Row = TypeVar("_Row", bound=_HasStep)


def plan_usable_first(question: Question) -> Plan:
    """A plan whose first row is usable.

    A layout of ``apart`` is among the best only if it leads all others by more than its error
    band, or if all layouts are ranked apart. ``apart`` keeps the others that are faster than the
    first row. At least half of a list can be used, and ``apart`` omits tiny leads.
    """
    found, most = plan(question), question.most
    if not found.best:
        return replace(found, best=found.apart, apart=(), are_all_apart=bool(found.apart))
    to_beat_s = min(one.step_s for one in (found.best[0], found.tightest or found.best[0]))
    tier = _tier(found.best[0], question)
    roomy = [one for one in found.apart if _tier(one, question) <= tier]
    lead = leading(roomy, to_beat_s, lambda one: planned_band(question.training, one).error)
    lead = lead[: None if most is None else max(1, most // 2)]
    best, ranked = (*lead, *found.best), {id(one) for one in lead}
    faster = [one for one in roomy if id(one) not in ranked and one.step_s < best[0].step_s]
    if most is None:
        ranked |= {id(one) for one in faster}
        slower = [one for one in found.apart if id(one) not in ranked]
        best = (*lead, *merge(found.best, slower, key=lambda one: _order(one, question)))
    else:
        faster = [one for one in faster if _least_gain_s(one, question) < best[0].step_s]
    return replace(found, best=best[:most], apart=tuple(faster))


def leading(rows: Iterable[_Row], to_beat_s: float, error: Callable[[_Row], float]) -> list[_Row]:
    """Rows that are faster than a step even at the end of their error band."""
    fast = (one for one in rows if one.step_s < to_beat_s)
    return [one for one in fast if one.step_s * (1.0 + error(one)) < to_beat_s]


def _least_gain_s(one: Planned, question: Question) -> float:
    """The shortest step that this one is faster than by more than next to nothing."""
    sequence = question.training.workload.sequence_length
    return one.step_s * (1.0 + least_lead(sequence, one.layout.context_parallel))


def _tier(one: Planned, question: Question) -> int:
    """0 with the headroom, 1 without."""
    return int(one.peak_bytes > question.limits.safe_bytes)


def _order(one: Planned, question: Question) -> tuple[int, float]:
    return _tier(one, question), one.step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestChange:
    """A training near the requested training, and the best layout for it.

    Attributes:
        question: with the changed workload or machines.
        planned: the layout.
    """

    question: Question
    planned: Planned


def nearest_changes(
    same: Iterable[Question],
    larger: Iterable[Question],
    refused: Iterable[LayoutRule] | None = None,
) -> tuple[NearestChange, ...]:
    """The changes whose first layout leaves the headroom free and can be used.

    If an offload comes first, layouts with it are excluded.

    Args:
        same: other trainings on the same machines, each of which is tried.
        larger: the same training on more and more GPUs, up to the first usable one.
        refused: rules that the first layout must obey; default: the rules by which layouts are
            ranked apart.
    """
    return (*_with_layouts(same, refused), *islice(_with_layouts(larger, refused), 1))


def _with_layouts(
    questions: Iterable[Question], refused: Iterable[LayoutRule] | None
) -> Iterator[NearestChange]:
    for one in questions:
        names = {rule.name for rule in (one.apart_rules if refused is None else refused)}
        every = replace(one, most=1, one_each=True)
        for changed in (every, replace(every, degrees=_without_offload(one.degrees))):
            first = next(iter(plan_usable_first(changed).best), None)
            is_usable = first is not None and first.plan_only_by not in names
            if first and is_usable and first.peak_bytes <= one.limits.safe_bytes:
                yield NearestChange(question=changed, planned=first)
                break


def _without_offload(degrees: Degrees) -> Degrees:
    return replace(degrees, offload=(Offload.NONE,))


def lighter_trainings(workload: Workload) -> Iterator[Workload]:
    """The same training with 8-bit optimizer states, then of adapters; adapters on 4 bits."""
    if workload.trains_adapters:
        if workload.weight_format is not WeightFormat.NF4:
            yield replace(workload, weight_format=WeightFormat.NF4)
        return
    light = {"adam": "adam8bit", "adamw": "adamw8bit"}.get(workload.optimizer.name or "")
    if light is not None:
        yield replace(workload, optimizer=Optimizer.from_name(light))
    yield workload.of_adapters()


def shorter_trainings(workload: Workload) -> Iterator[Workload]:
    """The same training on samples of half as many tokens, again and again."""
    length = workload.sequence_length // 2
    while length >= _SHORTEST:
        yield replace(workload, sequence_length=length)
        length //= 2
