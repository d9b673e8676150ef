"""Well-known layouts as restrictions of the enumeration. Not here: their results (reasons).

Not: which layouts are well known (families).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoconf_launch.core import Degrees, Offload, Recompute, divisors

from ..cost import ALL_LAYERS
from .search import Plan, Planned, Question
from .usable_rows import plan_usable_first

_NO_OFFLOAD = (Offload.NONE,)
_DATA = Degrees(
    tensor_parallel=(1,),
    pipeline_parallel=(1,),
    context_parallel=(1,),
    sequence_parallel=(False,),
    offload=_NO_OFFLOAD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLayouts:
    """Layouts that go by a name."""

    name: str
    degrees: Degrees


def families(best: Planned, *, world: int, node: int) -> tuple[NamedLayouts, ...]:
    """Common first choices, and the best layout with one thing changed."""
    known = (*_data_parallel(), *_model_parallel(world, node), *_single_changes(best))
    return tuple(NamedLayouts(name=name, degrees=degrees) for name, degrees in known)


def _data_parallel() -> Iterator[tuple[str, Degrees]]:
    yield "plain DDP", _without_recompute(replace(_DATA, expert_parallel=(1,), zero_stage=(0,)))
    for stage in (1, 2):
        yield f"ZeRO-{stage}, data parallel only", replace(_DATA, zero_stage=(stage,))
    yield "ZeRO-3 (FSDP), data parallel only", replace(_DATA, zero_stage=(3,))
    away = (Offload.OPTIMIZER, Offload.PARAMETERS)
    yield "ZeRO-3 with offload", replace(_DATA, zero_stage=(3,), offload=away)


def _model_parallel(world: int, node: int) -> Iterator[tuple[str, Degrees]]:
    inside = tuple(size for size in divisors(node) if size > 1)
    across = tuple(size for size in divisors(world) if size > node)
    deep = tuple(size for size in divisors(world) if size > 1)
    plain = Degrees(context_parallel=(1,), offload=_NO_OFFLOAD)
    if inside:
        yield (
            "TP in a node, no pipeline",
            replace(plain, tensor_parallel=inside, pipeline_parallel=(1,)),
        )
    if across:
        yield "TP across nodes", replace(plain, tensor_parallel=across)
    if deep:
        yield "PP only", replace(plain, tensor_parallel=(1,), pipeline_parallel=deep)
    if node > 1 and across:
        megatron = replace(
            plain, tensor_parallel=(node,), pipeline_parallel=deep, zero_stage=(0, 1)
        )
        yield f"Megatron's TP={node} with PP", megatron
    if deep:
        yield "context parallel", Degrees(context_parallel=deep, offload=_NO_OFFLOAD)


def _single_changes(best: Planned) -> Iterator[tuple[str, Degrees]]:
    """The best layout with one knob changed."""
    layout, same = best.layout, exactly(best)
    full = layout.recompute is Recompute.FULL and best.recompute_layers == ALL_LAYERS
    if not full:
        everything = replace(same, recompute=(Recompute.FULL,), recompute_layers=())
        yield "the best with full recompute", everything
    if layout.recompute is not Recompute.NONE:
        yield "the best without recompute", _without_recompute(same)
    if layout.sequence_parallel:
        yield "the best without sequence parallel", replace(same, sequence_parallel=(False,))
    if layout.virtual_pipeline > 1:
        yield "the best without virtual stages", replace(same, virtual_pipeline=(1,))
    if layout.expert_parallel > 1:
        yield "the best without expert parallel", replace(same, expert_parallel=(1,))
    if layout.offload is Offload.NONE:
        yield "the best with offload", replace(same, offload=(Offload.OPTIMIZER,))


def _without_recompute(degrees: Degrees) -> Degrees:
    return replace(degrees, recompute=(Recompute.NONE,), recompute_layers=())


def exactly(planned: Planned) -> Degrees:
    """Only this layout."""
    layout, layers = planned.layout, planned.recompute_layers
    some = layers != ALL_LAYERS
    return Degrees(
        tensor_parallel=(layout.tensor_parallel,),
        pipeline_parallel=(layout.pipeline_parallel,),
        virtual_pipeline=(layout.virtual_pipeline,),
        context_parallel=(layout.context_parallel,),
        expert_parallel=(layout.expert_parallel,),
        micro_batch=(layout.micro_batch,),
        zero_stage=(layout.zero_stage,),
        recompute=() if some else (layout.recompute,),
        recompute_layers=(layers,) if some else (),
        sequence_parallel=(layout.sequence_parallel,),
        offload=(layout.offload,),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """A family compared with the best layout of all.

    Attributes:
        plan: its layouts, the best of them ranked.
        best: of all layouts.
    """

    family: NamedLayouts
    plan: Plan
    best: Planned

    @property
    def fits(self) -> bool:
        """True if ``planned`` fits."""
        return bool(self.plan.best)

    @property
    def planned(self) -> Planned | None:
        """The fastest that fits, or the smallest if none does; None if none is valid."""
        return self.plan.best[0] if self.plan.best else self.plan.smallest

    @property
    def slower(self) -> float | None:
        """Share by which its step is slower than the best; None if the family is missing."""
        return self.plan.best[0].step_s / self.best.step_s - 1 if self.plan.best else None


def losers(question: Question, best: Planned) -> tuple[Loser, ...]:
    """Each family against the best layout; offloading families only if the question offloads."""
    offloads = set(question.degrees.offload or Offload)
    node = question.training.machine.gpus_per_node
    free = replace(question.limits, deadline_step_s=float("inf"), cost_step_s=float("inf"))
    of_family = replace(question, most=1, limits=free)
    return tuple(
        Loser(
            family=one,
            plan=plan_usable_first(replace(of_family, degrees=one.degrees)),
            best=best,
        )
        for one in families(best, world=question.world, node=node)
        if offloads.issuperset(one.degrees.offload or ())
    )
