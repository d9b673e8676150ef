"""The trainer of a question that names none, and the layouts that a trainer has.

One trainer is chosen for all layouts and formats of weights. The choice never depends on the ZeRO
stage or on how frozen weights are stored, so that sharding and quantizing never change the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np

from autoconf_launch.core import (
    Architecture,
    Offload,
    PipelineSchedule,
    Precision,
    Recompute,
    StateForm,
    Workload,
)

from ..cost import (
    ALL_LAYERS,
    OFFLOAD_CODES,
    RECOMPUTE_CODES,
    Abilities,
    Keep,
    LayoutColumns,
    LayoutRule,
    TrainerChoice,
    has_even_pieces,
)
from ..layers import uniform_parts
from ..space import Bools
from .bands import gpu_architecture

_KINDS = {
    "tp": "tensor_C",
    "sp": "sequence_parallel_C",
    "pp": "pipeline_C",
    "vpp": "virtual_C",
    "cp": "context_C",
    "ep": "expert_C",
}
"""Kinds of parallelism besides data parallelism, by their flags."""
_DESKTOPS = ("RTX-", "GTX-", "TITAN-", "Quadro-", "GB10-", "M1-", "M2-", "M3-", "M4-")
"""GPUs of desktops and workstations, on which no published table has a run of Megatron."""
_MEGATRONS = ("nemo", "megatron", "megatron-2021", "megatron-deepspeed")


def choose_trainer(
    workload: Workload, gpus: Iterable[str], checked: Mapping[str, frozenset[str]]
) -> TrainerChoice:
    """The trainer usually used for this on these GPUs, preferably one checked on them.

    Args:
        workload: the model, the precision, and the frozen parts.
        gpus: names of all GPUs in question.
        checked: architectures of GPUs on which runs of each trainer were predicted.
    """
    names = sorted(set(gpus))
    architectures = list(dict.fromkeys(map(gpu_architecture, names)))
    desktops = [name for name in names if name.startswith(_DESKTOPS)]
    if workload.trains_adapters or workload.frozen:
        part = "LoRA" if workload.trains_adapters else "frozen parts"
        return TrainerChoice(name="huggingface", why=f"default for {part}")
    if any(name.startswith("cpu") for name in names):
        return TrainerChoice(name="native", why="default on CPUs")
    if workload.precision is Precision.FP32:
        return TrainerChoice(name="huggingface", why="default for fp32")
    if workload.precision.is_quantized:
        return TrainerChoice(name="nemo", why=f"default for {workload.precision.value}")
    if desktops:
        return TrainerChoice(name="huggingface", why=f"default on {desktops[0]}")
    if _is_of_images(workload):
        return TrainerChoice(name="accelerate", why="default for models of images")
    places = " and ".join(architectures)
    known = [name for name, where in checked.items() if where.issuperset(architectures)]
    if "nemo" in known and _is_megatrons(workload):
        return TrainerChoice(name="nemo", why=f"default, checked on {places}")
    older = next((name for name in known if name.startswith("megatron")), None)
    where = f"checked there as {older}" if older else _checked_apart(architectures, checked)
    return TrainerChoice(name="megatron", why=f"default on {places}, {where}")


def _checked_apart(architectures: Iterable[str], checked: Mapping[str, frozenset[str]]) -> str:
    """Architectures that trainers of Megatron's family were checked on, if none was on all."""
    alike = {
        one: next((name for name in _MEGATRONS if one in checked.get(name, ())), "")
        for one in architectures
    }
    seen = [f"on {one} as {name}" for one, name in alike.items() if name]
    never = [one for one, name in alike.items() if not name]
    if not seen:
        return "never checked there"
    return f"checked {' and '.join(seen)}" + (f", never on {' or '.join(never)}" if never else "")


def _is_of_images(workload: Workload) -> bool:
    """True if the model reads no token numbers; the scripts of diffusers train with accelerate."""
    return isinstance(workload.model, Architecture) and not workload.model.vocabulary


def _is_megatrons(workload: Workload) -> bool:
    """True if the model is a decoder of the kind that NVIDIA's recipes train."""
    model = workload.model
    if not isinstance(model, Architecture):
        return False
    is_decoder = model.causal and not model.encoder_layers and model.front is None
    states = [one.state for one in uniform_parts(model) if one.state is not None]
    return is_decoder and all(state.form is StateForm.MAMBA2 for state in states)


@cache
def trainer_rules(has: Abilities, *, in_backward: bool = False) -> tuple[LayoutRule, ...]:
    """Layouts that a training code can be asked for; one rank has nothing to shard.

    ``in_backward``: weights are updated in the backward pass, so that gradients are not summed.
    """
    away = [OFFLOAD_CODES[one] for one in Offload if one in has.offload]
    none, lays_out = RECOMPUTE_CODES[Recompute.NONE], "layout" in has.parallel
    kinds = [RECOMPUTE_CODES[one] for one in Recompute if one.value in has.recompute]

    def among(stages: Iterable[int], x: LayoutColumns) -> Bools:
        is_alone_C = (x.shards_C == 1) & (x.zero_stage_C == 0)
        return np.asarray(np.isin(x.zero_stage_C, tuple(stages)) | is_alone_C)

    rules: tuple[tuple[str, str, str, Keep], ...] = (
        (
            "in_backward",
            "accumulation_C",
            "update-in-backward",
            lambda x, a, _: (x.accumulation_C == 1) | (not in_backward),
        ),
        ("zero", "zero_stage_C", "zero", lambda x, a, _: among(dict(has.zero), x)),
        (
            "zero_in_pipelines",
            "zero_stage_C",
            "zero",
            lambda x, a, _: (x.pipeline_C == 1) | among(has.zero_in_pipelines, x),
        ),
        (
            "zero_beside_tensor",
            "zero_stage_C",
            "zero",
            lambda x, a, _: (x.tensor_C * x.context_C == 1) | among(has.zero_beside_tensor, x),
        ),
        ("offload", "offload_C", "offload", lambda x, a, _: np.isin(x.offload_C, away)),
        (
            "activations",
            "offload_C",
            "offload",
            lambda x, a, _: (
                ~(x.are_activations_away_C & has.offload_alone)
                | ((x.pipeline_C == 1) & (x.recompute_C == none))
            ),
        ),
        ("layout", "virtual_C", "vpp", lambda x, a, _: has_even_pieces(x, a) | lays_out),
        ("recompute", "recompute_C", "recompute", lambda x, a, _: np.isin(x.recompute_C, kinds)),
        (
            "layers",
            "recompute_layers_C",
            "recompute-layers",
            lambda x, a, _: (x.recompute_layers_C == ALL_LAYERS) | ("layers" in has.recompute),
        ),
    )
    return (
        *(_no_kind(flag, knob) for flag, knob in _KINDS.items() if flag not in has.parallel),
        *(LayoutRule(f"trainer_{name}", knob, flag, "", keep) for name, knob, flag, keep in rules),
    )


@cache
def schedule_rules(schedule: PipelineSchedule) -> tuple[LayoutRule, ...]:
    """Layouts that a pipeline schedule can run."""
    if schedule.interleaves:
        return ()

    def has_enough(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
        enough = x.accumulation_C >= schedule.least * x.pipeline_C
        pairs = (schedule.copies == 1) | (x.pipeline_C % 2 == 0)
        return np.asarray((x.pipeline_C == 1) | (enough & pairs))

    name = schedule.name
    return (
        LayoutRule(
            "schedule_vpp",
            "virtual_C",
            "vpp",
            f"is not for schedule {name}, which has its own stages",
            lambda x, a, _: x.virtual_C == 1,
        ),
        LayoutRule(
            "schedule_micro_batches",
            "pipeline_C",
            "pp",
            f"needs {schedule.least:g} micro-batches a step for each stage in schedule {name}"
            + ", and an even number of stages" * (schedule.copies > 1),
            has_enough,
        ),
    )


def _no_kind(flag: str, knob: str) -> LayoutRule:
    is_switch = flag == "sp"
    long = "sequence-parallel" if is_switch else flag
    most = 0 if is_switch else 1
    return LayoutRule(f"trainer_{flag}", knob, long, "", lambda x, a, _: getattr(x, knob) <= most)
