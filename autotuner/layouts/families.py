"""Well-known layouts as restrictions of what is enumerated. Not: how they did (reasons)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoconf_launch.core import Layout, Offload, Recompute

from ..cost.memory_layouts import ALL_LAYERS
from .choices import Choices, divisors
from .search import Planned

_NO_OFFLOAD = (Offload.NONE,)
_DATA = Choices(
    tensor=(1,),
    pipeline=(1,),
    context=(1,),
    sequence_parallel=(False,),
    offload=_NO_OFFLOAD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Layouts that go by a name."""

    name: str
    choices: Choices


def families(best: Planned, *, world: int, node: int) -> tuple[Family, ...]:
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
    return tuple(Family(name=name, choices=choices) for name, choices in known)


def _data_parallel() -> Iterator[tuple[str, Choices]]:
    yield "plain DDP", _without_recompute(replace(_DATA, expert=(1,), zero=(0,)))
    for stage in (1, 2):
        yield f"ZeRO-{stage}, data parallel only", replace(_DATA, zero=(stage,))
    yield "ZeRO-3 (FSDP), data parallel only", replace(_DATA, zero=(3,))
    away = (Offload.OPTIMIZER, Offload.PARAMETERS)
    yield "ZeRO-3 with offload", replace(_DATA, zero=(3,), offload=away)


def _model_parallel(world: int, node: int) -> Iterator[tuple[str, Choices]]:
    inside = tuple(size for size in divisors(node) if size > 1)
    across = tuple(size for size in divisors(world) if size > node)
    deep = tuple(size for size in divisors(world) if size > 1)
    plain = Choices(context=(1,), offload=_NO_OFFLOAD)
    if inside:
        yield "TP in a node, no pipeline", replace(plain, tensor=inside, pipeline=(1,))
    if across:
        yield "TP across nodes", replace(plain, tensor=across)
    if deep:
        yield "PP only", replace(plain, tensor=(1,), pipeline=deep)
    if node > 1 and across:
        megatron = replace(plain, tensor=(node,), pipeline=deep, zero=(0, 1))
        yield f"Megatron's TP={node} with PP", megatron
    if deep:
        yield "context parallel", Choices(context=deep, offload=_NO_OFFLOAD)


def _changed(best: Planned) -> Iterator[tuple[str, Choices]]:
    """The best layout with one knob changed."""
    layout, same = best.layout, exactly(best)
    full = layout.recompute is Recompute.FULL and best.recompute_layers == ALL_LAYERS
    if not full:
        everything = replace(same, recompute=(Recompute.FULL,), layers=())
        yield "the best with full recompute", everything
    if layout.recompute is not Recompute.NONE:
        yield "the best without recompute", _without_recompute(same)
    if layout.sequence_parallel:
        yield "the best without sequence parallel", replace(same, sequence_parallel=(False,))
    if layout.virtual_pipeline > 1:
        yield "the best without virtual stages", replace(same, virtual=(1,))
    if layout.expert_parallel > 1:
        yield "the best without expert parallel", replace(same, expert=(1,))
    if layout.offload is Offload.NONE:
        yield "the best with offload", replace(same, offload=(Offload.OPTIMIZER,))


def _without_recompute(choices: Choices) -> Choices:
    return replace(choices, recompute=(Recompute.NONE,), layers=())


def exactly(planned: Planned) -> Choices:
    """One layout alone."""
    layout, layers = planned.layout, planned.recompute_layers
    some = layers != ALL_LAYERS
    return Choices(
        tensor=(layout.tensor_parallel,),
        pipeline=(layout.pipeline_parallel,),
        virtual=(layout.virtual_pipeline,),
        context=(layout.context_parallel,),
        expert=(layout.expert_parallel,),
        micro_batch=(layout.micro_batch,),
        zero=(layout.zero_stage,),
        recompute=() if some else (layout.recompute,),
        layers=(layers,) if some else (),
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
