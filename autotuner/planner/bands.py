"""Error bands of predicted steps, by the similarity of a training to the measured rows.

Rows of the published tables are alike by the kind of model (dense or with experts), then by the
precision of its GEMMs, then by the GPU's architecture. Each circle of likeness has its own band,
drawn towards the band of the next wider circle if it has few settings; a circle without any widens
it, as predictions without a kind, a precision or an architecture have shown
(``benchmarks/planner_bands.py``, which also prints ``MEASURED_GROUPS``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from autoconf_launch.core import (
    Architecture,
    Layout,
    Offload,
    Precision,
    StateForm,
    Workload,
)

from ..cost import Fabric
from ..layers import uniform_parts
from .search import Planned, Training

_PRIOR_SETTINGS = 4.0
_UNSEEN_METHOD = 2.0
"""A guess: no table has states in host memory, quantized weights or oversubscribed networks."""
_ASSUMED = {"reached_tflops": 0.35, "attention_tflops": 0.15, "all_reduce_gb_per_s": 0.15}
"""Error of a step for each rate of a described GPU that is assumed. Largest products reached 0.51
to 0.97 of the peak on twelve accelerators, 0.78 in the median (github:stas00/ml-engineering,
compute/accelerator/README.md); the others are guesses, as each is a part of a step."""
_CPU_BAND = 1.0
"""A guess: no table has CPUs, and their speed is one product and one copy measured just now."""


class Bits(str, Enum):
    """Number format of a layer's GEMMs."""

    FP32 = "fp32"
    TF32 = "tf32"
    SIXTEEN = "16 bits"
    FP8 = "fp8"
    MXFP8 = "mxfp8"
    FP4 = "fp4"

    @staticmethod
    def of(precision: Precision) -> Bits:
        """The group of a precision; recipes of fp8 with scales of large blocks are alike."""
        if not precision.is_quantized:
            return Bits(precision.value) if precision.value_bytes == 4 else Bits.SIXTEEN
        if precision is Precision.MXFP8:
            return Bits.MXFP8
        return Bits.FP8 if precision.is_fp8 else Bits.FP4


_ARCHITECTURES = {
    "V100": "Volta",
    "T4": "Turing",
    **dict.fromkeys(("A100", "A100X", "A800", "A30"), "Ampere"),
    **dict.fromkeys(("H100", "H200", "H800", "H20", "GH200"), "Hopper"),
    **dict.fromkeys(("B200", "B300", "GB200", "GB300"), "Blackwell"),
}


def gpu_architecture(name: str) -> str:
    """The architecture of a data center's GPU; any other GPU has its own."""
    return _ARCHITECTURES.get(name.split("-")[0], name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Common traits of rows, from the widest circle to the narrowest."""

    has_experts: bool
    bits: Bits
    architecture: str

    @staticmethod
    def of(workload: Workload, gpu: str) -> Traits:
        """Traits of a training on a GPU, by its name in the tables."""
        return Traits(
            has_experts=workload.architecture.experts is not None,
            bits=Bits.of(workload.precision),
            architecture=gpu_architecture(gpu),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGroup:
    """Settings of one table with equal traits; nine of ten steps are within ``error``."""

    table: str
    traits: Traits
    settings: int
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBand:
    """The error band of a prediction: nine of ten steps take the predicted time within ``error``.

    Attributes:
        unchecked: traits that at most one published run has, as part of a sentence.
        assumed: keys of a cluster file for rates of the GPU that were not measured.
        measured_error: the error if these were measured.
    """

    error: float
    unchecked: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    measured_error: float = 0.0

    def assuming(self, keys: tuple[str, ...]) -> StepBand:
        """The band on a GPU with assumed rates, whose errors are independent of the others."""
        if not keys:
            return self
        errors = (self.error, *(_ASSUMED[key] for key in keys))
        error = math.expm1(math.hypot(*map(math.log1p, errors)))
        return replace(
            self, error=min(error, 1.0), assumed=keys, measured_error=min(error, self.error)
        )


_UNSEEN_EXPERTS, _UNSEEN_BITS, _UNSEEN_ARCHITECTURE = 2.4, 1.25, 1.25


def step_band(
    traits: Traits, measured: Iterable[MeasuredGroup], *, methods: tuple[str, ...] = ()
) -> StepBand:
    """The band of a training by the groups that were measured.

    ``methods``: what the training does besides that no group has.
    """
    groups = tuple(measured)
    places = frozenset(one.traits.architecture for one in groups if _weight(one))
    error, wider, unchecked = _mean_error(groups), _UNSEEN_METHOD ** bool(methods), []
    for is_same, factor, what in _circles(traits, places):
        same = tuple(one for one in groups if is_same(one.traits))
        if not (count := sum(map(_weight, same))):
            wider *= factor
            unchecked.append(f"more than one run of {what}" if same else what)
            continue
        groups = same
        error += (_mean_error(same) - error) * count / (count + _PRIOR_SETTINGS)
    return StepBand(error=min(error * wider, 1.0), unchecked=(*unchecked, *methods))


def _circles(
    traits: Traits, places: frozenset[str]
) -> tuple[tuple[Callable[[Traits], bool], float, str], ...]:
    """A test of each circle, the factor for a training that it has no settings of, and a name.

    Architectures in ``places`` were measured with other trainings.

    Models with experts do all that dense ones do and more, so that these take the factor back.
    """
    has_experts, bits, architecture = traits.has_experts, traits.bits, traits.architecture
    kind = (_UNSEEN_EXPERTS, "experts") if has_experts else (1 / _UNSEEN_EXPERTS, "dense models")
    place = (
        f"{kind[1]} in {bits.value} on {architecture}" if architecture in places else architecture
    )
    return (
        (lambda other: other.has_experts == has_experts, *kind),
        (lambda other: other.bits is bits, _UNSEEN_BITS, bits.value),
        (lambda other: other.architecture == architecture, _UNSEEN_ARCHITECTURE, place),
    )


def _mean_error(groups: tuple[MeasuredGroup, ...]) -> float:
    """Mean of the groups' errors by their weights; 0 without any."""
    total = sum(_weight(one) * one.error for one in groups)
    return total / max(1.0, sum(map(_weight, groups)))


def _weight(group: MeasuredGroup) -> float:
    """Square root of the settings less one, so that no single table decides."""
    return math.sqrt(group.settings - 1)


def time_band(
    workload: Workload,
    layout: Layout,
    gpu: str,
    *,
    assumed: tuple[str, ...] = (),
    fabric: Fabric | None = None,
) -> StepBand:
    """The band of a layout's predicted step on a GPU, by the published tables.

    ``assumed``: rates of the GPU that neither our tables nor its description have.
    """
    if gpu.startswith("cpu"):
        return StepBand(error=_CPU_BAND, unchecked=("CPUs",))
    methods = [] if workload.weight_format is None else ["quantized weights"]
    if layout.offload is not Offload.NONE:
        methods.append("offload")
    if fabric is not None and fabric.spine < 1.0:
        methods.append("oversubscribed networks")
    if not workload.software.schedule.interleaves and layout.pipeline_parallel > 1:
        methods.append(f"schedule {workload.software.schedule.name}")
    methods.extend(_unseen_parts(workload.architecture))
    band = step_band(Traits.of(workload, gpu), MEASURED_GROUPS, methods=tuple(methods))
    return band.assuming(assumed)


def _unseen_parts(model: Architecture) -> Iterator[str]:
    """Parts of a model that no group of ``MEASURED_GROUPS`` has."""
    forms = {one.state.form for one in uniform_parts(model) if one.state is not None}
    if forms - {StateForm.MAMBA2}:
        yield "layers with such a state"
    elif forms and model.experts is None:
        yield "layers with a state in models without experts"
    if model.front is not None:
        yield "a tower in front of the text part"
    if model.indexer is not None:
        yield "attention to chosen keys"
    if not model.vocabulary:
        yield "models of images"


def planned_band(training: Training, one: Planned) -> StepBand:
    """The band of a layout's step as the training's measured runs leave it."""
    machine = training.machine
    gpu, fabric = machine.accelerator, machine.fabric
    band = time_band(training.workload, one.layout, gpu.name, assumed=gpu.assumed, fabric=fabric)
    error, measured = (
        (1.0 + error) ** one.narrowing - 1.0 for error in (band.error, band.measured_error)
    )
    return replace(band, error=error, measured_error=measured)


DENSE, EXPERTS = False, True
_GROUPS: tuple[tuple[str, bool, Bits, str, int, float], ...] = (
    ("amp_homogeneous_t4", DENSE, Bits.SIXTEEN, "Turing", 47, 0.153),
    ("automodel_h100", EXPERTS, Bits.SIXTEEN, "Hopper", 3, 0.177),
    ("automodel_h100", DENSE, Bits.SIXTEEN, "Hopper", 4, 0.050),
    ("bigscience_a100", DENSE, Bits.SIXTEEN, "Ampere", 33, 0.149),
    ("dgxc_h100_dense", DENSE, Bits.SIXTEEN, "Hopper", 19, 0.084),
    ("dgxc_h100_dense", DENSE, Bits.FP8, "Hopper", 19, 0.036),
    ("dgxc_moe", EXPERTS, Bits.SIXTEEN, "Hopper", 4, 0.152),
    ("dgxc_moe", EXPERTS, Bits.FP8, "Hopper", 4, 0.235),
    ("internevo_zero1_global", DENSE, Bits.SIXTEEN, "Ampere", 6, 0.075),
    ("internevo_zero1_node", DENSE, Bits.SIXTEEN, "Ampere", 11, 0.096),
    ("llmfoundry_fsdp_a100", DENSE, Bits.SIXTEEN, "Ampere", 139, 0.117),
    ("llmfoundry_fsdp_h100", DENSE, Bits.SIXTEEN, "Hopper", 70, 0.151),
    ("llmfoundry_fsdp_h100", DENSE, Bits.FP8, "Hopper", 7, 0.123),
    ("megatron_bridge", EXPERTS, Bits.MXFP8, "Blackwell", 11, 0.322),
    ("megatron_bridge", EXPERTS, Bits.FP8, "Hopper", 6, 0.462),
    ("megatron_bridge", DENSE, Bits.FP8, "Blackwell", 8, 0.094),
    ("megatron_bridge", DENSE, Bits.MXFP8, "Blackwell", 1, 0.067),
    ("megatron_bridge", DENSE, Bits.FP4, "Blackwell", 1, 0.185),
    ("megatron_bridge", DENSE, Bits.FP8, "Hopper", 5, 0.110),
    ("megatron_bridge", EXPERTS, Bits.SIXTEEN, "Blackwell", 5, 0.603),
    ("megatron_bridge", EXPERTS, Bits.SIXTEEN, "Hopper", 2, 0.186),
    ("megatron_bridge", EXPERTS, Bits.FP8, "Blackwell", 3, 0.338),
    ("megatron_bridge_26_06", DENSE, Bits.FP8, "Blackwell", 6, 0.100),
    ("megatron_bridge_26_06", DENSE, Bits.MXFP8, "Blackwell", 6, 0.058),
    ("megatron_bridge_26_06", DENSE, Bits.FP4, "Blackwell", 2, 0.107),
    ("megatron_bridge_26_06", DENSE, Bits.FP8, "Hopper", 3, 0.037),
    ("megatron_bridge_26_06", EXPERTS, Bits.MXFP8, "Blackwell", 8, 0.228),
    ("megatron_bridge_26_06", EXPERTS, Bits.SIXTEEN, "Blackwell", 2, 0.200),
    ("megatron_bridge_26_06", EXPERTS, Bits.SIXTEEN, "Hopper", 1, 0.085),
    ("megatron_bridge_26_06", EXPERTS, Bits.FP8, "Hopper", 1, 0.048),
    ("megatron_sc21", DENSE, Bits.SIXTEEN, "Ampere", 22, 0.679),
    ("nemo_24_07_h100", DENSE, Bits.FP8, "Hopper", 17, 0.152),
    ("playbook_h100_clean", DENSE, Bits.SIXTEEN, "Hopper", 280, 0.141),
    ("simumax_b200", DENSE, Bits.SIXTEEN, "Blackwell", 7, 0.145),
    ("simumax_b200", EXPERTS, Bits.SIXTEEN, "Blackwell", 5, 0.115),
    ("torchtitan", DENSE, Bits.SIXTEEN, "Hopper", 8, 0.108),
    ("torchtitan", DENSE, Bits.FP8, "Hopper", 18, 0.099),
    ("torchtune_small", DENSE, Bits.SIXTEEN, "RTX-4090-24GB", 2, 0.225),
    ("torchtune_small", DENSE, Bits.SIXTEEN, "Ampere", 3, 0.154),
    ("vtrain_multi_node", DENSE, Bits.SIXTEEN, "Ampere", 62, 0.147),
    ("vtrain_single_node", DENSE, Bits.SIXTEEN, "Ampere", 720, 0.137),
)
MEASURED_GROUPS = tuple(
    MeasuredGroup(
        table=table,
        traits=Traits(has_experts=has_experts, bits=bits, architecture=architecture),
        settings=settings,
        error=error,
    )
    for table, has_experts, bits, architecture, settings, error in _GROUPS
)
"""Groups of the published tables, as ``benchmarks/planner_bands.py`` prints them."""
