"""Well-known layouts as restrictions of what is enumerated. Not: how they did (reasons).

Not: which layouts are well known (families).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autoconf_launch.core import Degrees, Layout, Offload, Recompute

from ..cost import ALL_LAYERS
from .degrees import divisors
from .search import Plan, Planned, Question, plan

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
    """Those that people try first, and the best one with one thing changed.

    Args:
        best: what won.
        world: GPUs in all.
        node: GPUs of a node.
    """
    known = [
        *_data_parallel(),
        *_model_parallel(world, node),
        *_changed(best),
    ]
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


def _changed(best: Planned) -> Iterator[tuple[str, Degrees]]:
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
    """One layout alone."""
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


def name_of(layout: Layout) -> str:
    """Degrees of a layout in a few words."""
    degrees = {
        "dp": layout.data_parallel,
        "tp": layout.tensor_parallel,
        "pp": layout.pipeline_parallel,
        "vpp": layout.virtual_pipeline,
        "cp": layout.context_parallel,
        "ep": layout.expert_parallel,
    }
    words = [f"{knob}={size}" for knob, size in degrees.items() if size > 1 or knob == "dp"]
    words += [f"zero={layout.zero_stage}", f"micro-batch={layout.micro_batch}"]
    if layout.recompute is not Recompute.NONE:
        words.append(f"recompute={layout.recompute.value}")
    if layout.sequence_parallel:
        words.append("sp")
    if layout.offload is not Offload.NONE:
        words.append(f"offload={layout.offload.value}")
    return " ".join(words)


_GIB = 2**30
_LEAST_NAMED = 0.005
_LEAST_SHARE = 0.25
_MOST_NAMED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """The best layout of a family, and why it is not the best of all.

    Attributes:
        planned: the fastest that fits, or the smallest if none does; None where none is valid.
        fits: whether ``planned`` does.
        slower: its step over the best one's, less 1; None where it has no place in the ranking.
    """

    family: str
    planned: Planned | None
    fits: bool
    slower: float | None
    why: str


def losers(question: Question, best: Planned) -> tuple[Loser, ...]:
    """Each family beside the best layout."""
    node = question.training.machine.gpus_per_node
    free = replace(question.limits, deadline_step_s=float("inf"), cost_step_s=float("inf"))
    found = []
    for family in families(best, world=question.world, node=node):
        asked = replace(question, degrees=family.degrees, most=1, limits=free)
        found.append(_loser(family, plan(asked), best, question))
    return tuple(found)


def _loser(family: NamedLayouts, found: Plan, best: Planned, question: Question) -> Loser:
    planned = found.best[0] if found.best else found.smallest
    slower = planned.step_s / best.step_s - 1 if planned and found.best else None
    return Loser(
        family=family.name,
        planned=planned,
        fits=bool(found.best),
        slower=slower,
        why=_why(found, best, question) if found.considered else _impossible(family, question),
    )


def _impossible(family: NamedLayouts, question: Question) -> str:
    """Which equation has no solution."""
    chosen = family.degrees
    axes = (chosen.tensor_parallel, chosen.pipeline_parallel, chosen.context_parallel)
    sizes = [axis or () for axis in axes]
    if all(len(values) == 1 for values in sizes):
        ranks = math.prod(values[0] for values in sizes)
        data = question.world // ranks
        return f"dp={data} does not divide a global batch of {question.global_batch}"
    return "no such mesh divides the GPUs and the global batch"


def _why(found: Plan, best: Planned, question: Question) -> str:
    if not found.valid:
        rules = sorted(found.rejected, key=lambda one: -one[1])
        return f"breaks {' or '.join(name for name, _ in rules[:2])}"
    if found.smallest is not None:
        over = found.smallest.peak_bytes - question.limits.memory_bytes
        return f"needs {over / _GIB:.1f} GiB too much"
    one = found.best[0]
    if one.layout == best.layout and one.recompute_layers == best.recompute_layers:
        return "is the best"
    return compared(one, best, question.training.machine.gpus_per_node)


def compared(one: Planned, best: Planned, node: int) -> str:
    """What makes ``one`` slower: the largest of its losses, as shares of the best one's step.

    A bubble is given as the share of the slower step that it takes.
    """
    before = dict(best.parts)
    more = {name: (s - before[name]) / best.step_s for name, s in one.parts}
    losses = sorted(
        ((share, name) for name, share in more.items() if share >= _LEAST_NAMED), reverse=True
    )
    if not losses or one.step_s <= best.step_s * (1 + _LEAST_NAMED):
        return "as fast within half a percent"
    total = sum(share for share, _ in losses)
    named = [pair for pair in losses[:_MOST_NAMED] if pair[0] >= _LEAST_SHARE * total]
    return ", ".join(_phrase(name, share, one, node) for share, name in named)


def _phrase(name: str, share: float, one: Planned, node: int) -> str:
    if name == "bubble":
        return f"pipeline bubble {100 * dict(one.parts)['bubble'] / one.step_s:.0f} %"
    words = {
        "ideal": "matrix products",
        "kernels": "kernel inefficiency",
        "recompute": "recomputation",
        "launch": "launch floor",
        "communication": "communication",
        "update": "update",
    }
    text = f"+{100 * share:.0f} % {words[name]}"
    if name == "communication" and one.layout.tensor_parallel > node:
        return f"TP crosses nodes: {text}"
    return text


PARTS = {
    "ideal": "ideal",
    "kernels": "kernel efficiency",
    "launch": "launch floor",
    "bubble": "bubble",
    "communication": "exposed communication",
    "recompute": "recompute",
    "update": "update",
}
"""Parts of ``StepParts`` in the order of the drawing, and what people call them."""

PROFILED_PARTS = {
    "samples": "samples",
    "launch": "launch floor",
    "recompute": "recompute",
    "communication": "exposed communication",
    "update": "update",
}
"""The same for ``StepSeconds``: where a model was profiled, its samples are not distinguished."""


MEASURED_PARTS = {
    "forward": "forward",
    "backward": "backward",
    "exchange": "exposed communication",
    "update": "update",
    "between": "between steps",
}
"""The same for a step that a rank took apart: recompute is within its backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStep:
    """One loss: it starts where the ones before it end."""

    name: str
    start_s: float
    seconds: float


def waterfall(
    parts: Sequence[tuple[str, float]], names: Mapping[str, str] = PARTS
) -> tuple[WaterfallStep, ...]:
    """The parts of a step in the order in which they are lost."""
    given = dict(parts)
    found, start_s = [], 0.0
    for part, name in names.items():
        found.append(WaterfallStep(name=name, start_s=start_s, seconds=given[part]))
        start_s += given[part]
    return tuple(found)
