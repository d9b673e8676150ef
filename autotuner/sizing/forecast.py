"""Speed, days and money of a model on a cluster.

The speed is the speed of the planner's fastest layout that fits safely and that a search would run
(``search_rules``). Each assumption has a name that ``--assume NAME=VALUE`` changes; none is
measured here. ``benchmarks/nvidia_published_speeds.py`` compares published speeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from autoconf_launch.core import ConfigError, Degrees, Layout, Offload, divisors, nearest_known

from ..cost import EXPERTS_BAND, MEMORY_BAND, STEP_TIME_BAND
from ..planner import (
    Limits,
    Planned,
    Question,
    Training,
    is_short_for_context,
    plan,
)
from .model_size import FLOPS_PER_PARAMETER_AND_TOKEN, SECONDS_PER_DAY
from .search_space import search_rules

_DEGREES = Degrees(zero_stage=(0, 1), offload=(Offload.NONE,))
"""ZeRO 1 is the distributed optimizer of NeMo's configurations; there is no more, nor offload."""
_BATCH_BAND = 0.1
_MOST_BATCHES = 3
_WORTH = 1.05
"""Speed that must be gained for another batch than a table's."""
_MOST_NEAR = 8
_HOUR_S = 3600.0
WHY: Mapping[str, str] = MappingProxyType(
    {
        "gpu_hours_between_failures": "419 unexpected interruptions in 54 days of 16384 GPUs are "
        "one in 50700 GPU hours (Dubey et al. 2024, The Llama 3 Herd of Models, section 3.3.4)",
        "restart_s": "assumed: scheduling, loading and compiling",
        "checkpoint_every_s": "assumed: one an hour",
        "checkpoint_s": "assumed: training waits while it is written",
        "evaluation_share": "assumed",
        "other_share": "assumed: stalls of data, slow nodes, planned stops",
    }
)
_SHARES = frozenset({"evaluation_share", "other_share"})
_MOST_SHARE = 0.45
_NINE_OF_TEN = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A training on a number of equal nodes.

    Attributes:
        memory_bytes: memory of one GPU.
        global_batch: samples of a step; if it was not given by the user (``is_batch_given``), a
            batch within a tenth of it may be taken.
        active_parameters: parameters in the formula's count of operations.
        slowest: end of the answer's error band, below 1: a micro-batch other than a power of two
            must lead by more; None: it need not lead.
    """

    training: Training
    nodes: int
    memory_bytes: float
    global_batch: int
    is_batch_given: bool
    active_parameters: int
    slowest: float | None = None

    @property
    def gpus(self) -> int:
        return self.nodes * self.training.machine.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Achieved:
    """The fastest layout found.

    Attributes:
        recompute_layers: layers of each stage that are recomputed in full; -1 for all.
        tflops_per_gpu: as NVIDIA's formula counts: 8 operations for each active parameter and
            token.
        model_tflops_per_gpu: operations of the model only, attention included.
        is_batch_changed: the layout's global batch differs from the task's.
        is_batch_given: the user gave the batch.
        narrowing: spread of the step's error that measured runs leave, over the one before.
    """

    layout: Layout
    recompute_layers: int
    step_s: float
    tokens_per_s: float
    peak_bytes: float
    tflops_per_gpu: float
    model_tflops_per_gpu: float
    is_batch_changed: bool
    is_batch_given: bool
    narrowing: float = 1.0


def achieved_speed(task: Task) -> Achieved | None:
    """The layout that reads most tokens in a second; None if none fits safely."""
    exact = _plan(task, task.global_batch)
    if task.is_batch_given and exact:
        return _speed_of(task, exact)
    near = next((one for batch in _near(task) if (one := _plan(task, batch))), None)
    best = exact or near
    if exact and near and _samples_per_s(near) >= _WORTH * _samples_per_s(exact):
        best = near
    return _speed_of(task, best) if best else None


def near_layouts(task: Task, achieved: Achieved) -> tuple[Planned, ...]:
    """The layout that was found, then the fastest of other families that fit as safely."""
    question = _question(task, achieved.layout.global_batch)
    if achieved.layout.micro_batch in _usual_micro_batches(task):
        question = _with_usual(question, task)
    found = plan(replace(question, most=_MOST_NEAR, one_each=True))
    assert found.surely is not None
    others = (one for one in found.best if one.layout != found.surely.layout)
    sure = (o for o in others if o.peak_bytes * (1.0 + MEMORY_BAND) <= task.memory_bytes)
    return (found.surely, *sure)


def _near(task: Task) -> Iterator[int]:
    """Batches within a tenth that many data-parallel ranks divide, the widest first."""
    wanted = task.global_batch
    near = {
        batch: None
        for data in reversed(divisors(task.gpus))
        if (batch := round(wanted / data) * data) != wanted
        and abs(batch / wanted - 1) <= _BATCH_BAND
    }
    yield from list(near)[:_MOST_BATCHES]


def _plan(task: Task, batch: int) -> Planned | None:
    question = _question(task, batch)
    best = plan(question).surely
    if best is None or task.slowest is None:
        return best
    if best.layout.micro_batch in _usual_micro_batches(task):
        return best
    usual = plan(_with_usual(question, task)).surely
    leads = usual is None or best.step_s < task.slowest**best.narrowing * usual.step_s
    return best if leads else usual


def _usual_micro_batches(task: Task) -> tuple[int, ...]:
    """Powers of two that divide the task's global batch."""
    return tuple(size for size in divisors(task.global_batch) if size & (size - 1) == 0)


def _with_usual(question: Question, task: Task) -> Question:
    degrees = replace(question.degrees, micro_batch=_usual_micro_batches(task))
    return replace(question, degrees=degrees)


def _question(task: Task, batch: int) -> Question:
    workload = replace(task.training.workload, global_batch=batch)
    is_short = is_short_for_context(workload.sequence_length)
    degrees = replace(_DEGREES, context_parallel=(1,)) if is_short else _DEGREES
    return Question(
        training=replace(task.training, workload=workload),
        world=task.gpus,
        limits=Limits(memory_bytes=task.memory_bytes),
        degrees=degrees,
        most=1,
        rules=search_rules(task.training.machine.gpus_per_node, _DEGREES),
    )


def _samples_per_s(one: Planned) -> float:
    return one.layout.global_batch / one.step_s


def _speed_of(task: Task, one: Planned) -> Achieved:
    training = task.training
    tokens_per_s = _samples_per_s(one) * training.workload.sequence_length
    per_token = FLOPS_PER_PARAMETER_AND_TOKEN * task.active_parameters
    return Achieved(
        layout=one.layout,
        recompute_layers=one.recompute_layers,
        step_s=one.step_s,
        tokens_per_s=tokens_per_s,
        peak_bytes=one.peak_bytes,
        tflops_per_gpu=per_token * tokens_per_s / task.gpus / 1e12,
        model_tflops_per_gpu=one.mfu * training.machine.accelerator.half_flops_per_s / 1e12,
        is_batch_changed=one.layout.global_batch != task.global_batch,
        is_batch_given=task.is_batch_given,
        narrowing=one.narrowing,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Assumptions; times in the units of their names.

    Attributes:
        gpu_hours_between_failures: mean GPU hours between interruptions of the job.
        restart_s: time from a failure to the first step after it.
        checkpoint_every_s: half of it is lost at each failure.
        checkpoint_s: pause of the training while it is written.
        evaluation_share: share of all time.
        other_share: share of data stalls, slow nodes, planned stops.
    """

    gpu_hours_between_failures: float = 50_000.0
    restart_s: float = 900.0
    checkpoint_every_s: float = 3600.0
    checkpoint_s: float = 60.0
    evaluation_share: float = 0.01
    other_share: float = 0.02

    def share(self, gpus: int) -> float:
        """Part of all time that goes into steps that last, above 0 and at most 1."""
        saving = self.checkpoint_every_s / (self.checkpoint_every_s + self.checkpoint_s)
        failures_per_s = gpus / (self.gpu_hours_between_failures * _HOUR_S)
        again = 1.0 + failures_per_s * (self.restart_s + self.checkpoint_every_s / 2)
        return saving / again * (1.0 - self.evaluation_share - self.other_share)


def with_assumption(goodput: Goodput, name: str, value: float) -> Goodput:
    """A goodput with one assumption set.

    Raises:
        ConfigError: the name is unknown, or the value is out of range.
    """
    if name not in WHY:
        raise ConfigError(f"Assumption {name!r} is unknown; {nearest_known(name, WHY)}")
    most = _limit(name)
    least = 0.0 if name in _SHARES or name in ("restart_s", "checkpoint_s") else 1e-9
    if not least <= value <= most:
        raise ConfigError(f"Assumption {name} is {value:g}, but must be {least:g} to {most:g}.")
    return replace(goodput, **{name: value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Days if one assumption is half and twice as large.

    Attributes:
        why: source of its value.
        flag: option that sets it.
    """

    name: str
    value: float
    days_at_half: float
    days_at_double: float
    why: str
    flag: str


def sensitivities(goodput: Goodput, gpus: int, days: float) -> tuple[Sensitivity, ...]:
    """Sensitivity to each assumption, largest effect first.

    Args:
        goodput: as assumed.
        gpus: of the training.
        days: of steps, without interruptions.
    """

    def days_with(name: str, factor: float) -> float:
        value = getattr(goodput, name) * factor
        return days / with_assumption(goodput, name, min(value, _limit(name))).share(gpus)

    found = [
        Sensitivity(
            name=field.name,
            value=getattr(goodput, field.name),
            days_at_half=days_with(field.name, 0.5),
            days_at_double=days_with(field.name, 2.0),
            why=WHY[field.name],
            flag=f"--assume {field.name}",
        )
        for field in fields(goodput)
    ]
    return by_effect(found)


def by_effect(found: Iterable[Sensitivity]) -> tuple[Sensitivity, ...]:
    """Sort by effect, largest first."""
    return tuple(sorted(found, key=lambda one: -abs(one.days_at_double - one.days_at_half)))


def _limit(name: str) -> float:
    return _MOST_SHARE if name in _SHARES else 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSpeed:
    """A published training; ``ratio`` is its speed over the predicted speed of the best layout.

    ``training`` is equal for runs that differ only in the number of GPUs.
    """

    training: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedBand:
    """Ratios to the predicted speed between which nine of ten trainings are.

    Attributes:
        slowest, fastest: below and above 1.
        source: its origin, as part of a sentence.
    """

    slowest: float
    fastest: float
    source: str


def speed_band(published: Sequence[PublishedSpeed], *, has_experts: bool) -> SpeedBand:
    """The band of published speeds, never narrower than the band of a predicted step.

    Each training counts once, however many runs it has. If no table has a model with experts,
    their band of a step counts.

    Args:
        published: at least one.
        has_experts: of the model that is predicted.
    """
    runs = Counter(one.training for one in published)
    weighed = sorted((one.ratio, 1.0 / runs[one.training]) for one in published)
    tail = (1.0 - _NINE_OF_TEN) / 2.0
    least = EXPERTS_BAND if has_experts else STEP_TIME_BAND
    note = "; none of them has experts, so that it is wider" if has_experts else ""
    return SpeedBand(
        slowest=min(_quantile(weighed, tail), 1.0 - least),
        fastest=max(_quantile(weighed, 1.0 - tail), 1.0 + least),
        source=(
            f"nine of ten of NVIDIA's {len(runs)} published trainings ({len(published)} runs)"
            f"{note}"
        ),
    )


def log_width(band: SpeedBand) -> float:
    """Half of the logarithm of its fastest over its slowest speed."""
    return math.log(band.fastest / band.slowest) / 2.0


def narrow_band(band: SpeedBand, share: float) -> SpeedBand:
    """The band of a layout of which measured runs leave a share of the spread."""
    return SpeedBand(
        slowest=band.slowest**share,
        fastest=band.fastest**share,
        source=f"{band.source}, and the measured runs",
    )


def _quantile(weighed: Sequence[tuple[float, float]], share: float) -> float:
    """The weighted quantile."""
    wanted = share * sum(weight for _, weight in weighed)
    seen = 0.0
    for value, weight in weighed:
        seen += weight
        if seen >= wanted - 1e-9:
            return value
    return weighed[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Days and money of a training on a cluster.

    Attributes:
        step_days: days of steps only; ``days`` includes all losses.
        days_low, days_high: days at the ends of the band of published speeds.
        usd: None if no price is known.
        price: source of the price.
        sensitivities: effect of each assumption on ``days``.
    """

    achieved: Achieved
    step_days: float
    goodput_share: float
    days: float
    days_low: float
    days_high: float
    band: SpeedBand
    usd: float | None
    price: str
    sensitivities: tuple[Sensitivity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """Price of one GPU; None if unknown."""

    usd_per_gpu_hour: float | None
    source: str


def outlook(
    achieved: Achieved,
    tokens_b: float,
    gpus: int,
    goodput: Goodput,
    price: GpuPrice,
    band: SpeedBand,
) -> Outlook:
    """Days and money of ``tokens_b`` billion tokens."""
    step_days = tokens_b * 1e9 / achieved.tokens_per_s / SECONDS_PER_DAY
    share = goodput.share(gpus)
    days, hourly = step_days / share, price.usd_per_gpu_hour
    return Outlook(
        achieved=achieved,
        step_days=step_days,
        goodput_share=share,
        days=days,
        days_low=days / band.fastest,
        days_high=days / band.slowest,
        band=band,
        usd=None if hourly is None else days * 24 * gpus * hourly,
        price=price.source,
        sensitivities=sensitivities(goodput, gpus, step_days),
    )
