"""The answers of ``fit`` and ``plan`` as values. Not: their text (views)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autoconf_launch.autotuner.cost import (
    FormatGain,
    LayoutColumns,
    MemoryParts,
    NodeLimits,
    Proposal,
    Remedy,
    TrainerChoice,
    Verdict,
    broken_rule,
    can_split_sequence,
    estimate,
    remedies,
    verdict,
)
from autoconf_launch.autotuner.planner import (
    GpuCount,
    Limits,
    Loser,
    OwnRuns,
    Plan,
    Planned,
    Question,
    StepBand,
    Training,
    fewest_gpus,
    losers,
    plan_usable_first,
    planned_band,
)
from autoconf_launch.autotuner.space import PredictionTable
from autoconf_launch.core import (
    ClusterSpec,
    ConfigError,
    Degrees,
    Layout,
    Offload,
    Workload,
)

from ..asked import Goal
from ..machine import is_cpu
from ..measurements import TrainingRuns, read_training_runs
from .fit_stages import StageFits, fit_stages, is_by_stages
from .requests import FitRequest, PlanRequest, price_of_gpu
from .runnable import (
    RowState,
    apart_rules,
    changes_to_use,
    default_zero,
    has_sequence,
    layout_rules,
    layout_state,
    plan_limits,
    row_states,
    trainer_of_layout,
    training_steps,
)
from .training_choice import (
    BY_SCRIPT,
    ChosenPrice,
    TrainingRequest,
    check_positions,
    check_precision,
    check_weights,
    choose_price,
    layout_format_gains,
    machine_of,
    nodes_like,
    proposal_step_s,
    require_equal_nodes,
    require_rates,
    rules_of,
    smallest_cluster,
    usual_trainer,
    whole_node,
)
from .verifying import Verifying, log_band, run_bounds, verify_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """What a node keeps in host memory, and what it has; ``limit_bytes`` None where not known."""

    needed_bytes: float
    limit_bytes: float | None

    @property
    def is_short(self) -> bool:
        """Whether a node surely lacks room for what is offloaded."""
        return self.limit_bytes is not None and self.needed_bytes > self.limit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer:
    """All that the two forms of the report say.

    ``memory`` has one row for each stage; ``step_s`` is a step of the layout as asked, were memory
    no limit, None where no time model covers it. The verdict is no, too, where ``host`` is short.
    ``smallest``: where nothing like the layout fits,
    the first of ever larger clusters of such nodes on which a layout without offload does.
    ``by_stages``: where nodes differ, or the layout says what lies where, each stage on its own
    GPUs; ``limit_bytes`` are those of the tightest one. ``state``: the layout's runner.
    ``gains``: formats in which products that run in fp32 would be faster.
    ``script``: name of the script whose model is known by its pieces.
    """

    cluster: ClusterSpec
    trainer: TrainerChoice
    asked: Proposal
    memory: MemoryParts
    limit_bytes: int
    verdict: Verdict
    step_s: float | None
    state: RowState
    remedies: tuple[Remedy, ...]
    host: HostMemory
    smallest: ClusterSpec | None = None
    by_stages: StageFits | None = None
    gains: tuple[FormatGain, ...] = ()
    script: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """All that the forms of the report say.

    Attributes:
        steps: of the whole training; None where no tokens were given.
        seconds: that enumerating, pricing and ranking took.
        losers: empty unless asked for.
        needed: where the number of GPUs was asked for; the request's cluster then has so many, or
            as many as come nearest.
        measured: runs that correct the steps, where some were given.
        verifying: runs that would narrow the first row's band, where they were asked for.
        gains: formats in which products that run in fp32 would be faster, in the first layout.
        changes: the nearest trainings that fit, where no layout that fits runs and was checked.
    """

    request: PlanRequest
    question: Question
    price: ChosenPrice | None
    steps: int | None
    plan: Plan
    seconds: float
    losers: tuple[Loser, ...]
    needed: GpuCount | None = None
    measured: TrainingRuns | None = None
    verifying: Verifying | None = None
    gains: tuple[FormatGain, ...] = ()
    changes: tuple[PlanAnswer, ...] = ()

    @property
    def workload(self) -> Workload:
        """The training."""
        return self.request.training.workload

    @property
    def cluster(self) -> ClusterSpec:
        return self.request.training.cluster

    @property
    def rows(self) -> tuple[Planned, ...]:
        """The layouts to use, the best one first."""
        return self.plan.best

    @property
    def apart(self) -> tuple[Planned, ...]:
        """Faster layouts that are plan-only or were never checked."""
        return self.plan.apart

    def bands(self, rows: Sequence[Planned]) -> list[StepBand]:
        """How far off each layout's predicted step may be."""
        training, found = self.question.training, dict[tuple[Offload, float], StepBand]()
        for one in rows:
            if (key := (one.layout.offload, one.narrowing)) not in found:
                found[key] = planned_band(training, one)
        return [found[one.layout.offload, one.narrowing] for one in rows]

    def states(self, rows: Sequence[Planned]) -> list[RowState]:
        training, apart = self.request.training, apart_rules(self.request)
        return row_states(training, [one.plan_only_by for one in rows], apart)

    def fullest(self, one: Planned) -> tuple[float, float]:
        """Memory that the fullest rank of a layout needs, and what a GPU has."""
        return one.peak_bytes, self.request.training.limit_bytes

    def trainer_by_flags(self, changed: PlanAnswer) -> str:
        """The trainer that a changed training would get were only its other flags typed."""
        own, gpus = self.request.training, [device.name for device in changed.cluster.devices]
        if "--trainer" in own.given or self.request.runnable or own.trainer.why == BY_SCRIPT:
            return own.trainer.name
        return usual_trainer(changed.workload, gpus).name

    def usd_per_step(self, one: Planned) -> float | None:
        """Money for all GPUs while a step lasts; None where no price is known."""
        if self.price is None:
            return None
        return self.question.world * self.price.usd_per_gpu_hour * one.step_s / 3600


def fit_answer(request: FitRequest) -> FitAnswer:
    """Predict, and look for remedies.

    Raises:
        ConfigError: an impossible layout, or a precision that a GPU does not compute in.
    """
    training = request.training
    check_precision(training.workload.precision, training.cluster)
    check_weights(training.workload)
    check_positions(training.workload)
    layers = request.recompute_layers
    training = trainer_of_layout(
        training, lambda one: _layout(replace(request, training=one)), layers
    )
    request = replace(request, training=training)
    workload, cluster, limit_bytes = training.workload, training.cluster, training.limit_bytes
    asked = Proposal(layout=_layout(request), workload=workload, recompute_layers=layers)
    columns = LayoutColumns.from_layouts([asked.layout], [asked.recompute_layers])
    sequence = workload.sequence_length
    if why := broken_rule(asked.layout, columns, workload.architecture, sequence):
        raise ConfigError(f"{why}.")
    if is_by_stages(request):
        return _answer_by_stages(request, asked, columns)
    predicted = estimate(columns, workload, cluster)
    limits = NodeLimits(
        device_bytes=limit_bytes,
        gpus=min(len(node.devices) for node in cluster.nodes),
        host_bytes=cluster.least_host_memory_bytes,
    )
    host = _host_memory(predicted, training)
    answer = verdict(float(predicted.peak_bytes_C[0]), limit_bytes)
    answer = Verdict.NO if host.is_short else answer
    found: tuple[Remedy, ...] = ()
    seconds = partial(proposal_step_s, cluster)
    if answer is Verdict.NO:
        rules, splits = rules_of(training), has_sequence(training)
        found = remedies(asked, limits, seconds, rules, splits=splits)
    return FitAnswer(
        cluster=cluster,
        trainer=training.trainer,
        asked=asked,
        memory=MemoryParts(named=predicted.stage_parts),
        limit_bytes=limit_bytes,
        verdict=answer,
        step_s=seconds([asked])[0],
        state=layout_state(training, asked.layout, layers),
        remedies=found,
        host=host,
        smallest=smallest_cluster(training) if answer is Verdict.NO and not found else None,
        gains=layout_format_gains(training, asked),
    )


def _answer_by_stages(request: FitRequest, asked: Proposal, columns: LayoutColumns) -> FitAnswer:
    """Without remedies: ``plan`` ranks what fits on such a cluster."""
    training = request.training
    predicted = estimate(columns, training.workload, training.cluster)
    found, host = fit_stages(request, asked.layout), _host_memory(predicted, training)
    return FitAnswer(
        cluster=training.cluster,
        trainer=training.trainer,
        asked=asked,
        memory=found.memory,
        limit_bytes=int(found.tightest.limit_bytes),
        verdict=Verdict.NO if host.is_short else found.verdict,
        step_s=found.step_s,
        state=layout_state(training, asked.layout, asked.recompute_layers),
        remedies=(),
        host=host,
        by_stages=found,
    )


def _host_memory(predicted: PredictionTable, training: TrainingRequest) -> HostMemory:
    """Need of the node with most GPUs, and memory of the one with least."""
    needed_C = predicted.host_bytes_C
    return HostMemory(
        needed_bytes=0.0 if needed_C is None else float(needed_C[0]),
        limit_bytes=training.cluster.least_host_memory_bytes,
    )


def _layout(request: FitRequest) -> Layout:
    """Layout whose data parallelism and accumulation follow from cluster and global batch."""
    training, layout = request.training, request.layout
    world, (tensor, pipeline, context, _) = _ranks(request), layout.mesh
    others = tensor * pipeline * context
    if world % others:
        valid = " ".join(str(n) for n in range(1, min(world, 4096) + 1) if world % n == 0)
        raise ConfigError(
            f"tp={tensor} x pp={pipeline} x cp={context} = {others} does "
            f"not divide {world} GPUs; valid products: {valid}."
        )
    data = world // others
    if (samples := layout.micro_batch_split) and len(samples) != data:
        raise ConfigError(
            f"--micro-batch-split has {len(samples)} micro-batches, but there are {data} "
            "data-parallel ranks; give one for each."
        )
    once = data * layout.micro_batch
    if training.workload.global_batch % once:
        raise ConfigError(
            f"--global-batch {training.workload.global_batch} is not a multiple of micro-batch "
            f"{layout.micro_batch} x {data} data-parallel ranks = {once}; "
            f"valid: {once}, {2 * once}, {3 * once}, …"
        )
    can_split = can_split_sequence(layout, training.workload) and has_sequence(training)
    layout = replace(
        layout,
        data_parallel=data,
        accumulation=training.workload.global_batch // once,
        sequence_parallel=layout.sequence_parallel or (can_split and request.is_sequence_open),
    )
    if not request.is_zero_open:
        return layout
    return replace(layout, zero_stage=default_zero(training, layout))


def _ranks(request: FitRequest) -> int:
    """All slots of the cluster, or those of a placement."""
    placement = request.layout.placement
    return len(request.training.cluster.devices) if placement is None else len(placement)


def plan_answer(request: PlanRequest) -> PlanAnswer:
    """Plan.

    Raises:
        ConfigError: unequal nodes, no price where one is needed, or a precision that a GPU does
            not compute in.
    """
    training = request.training
    require_equal_nodes(training.cluster)
    require_rates(training.cluster)
    check_precision(training.workload.precision, training.cluster)
    check_weights(training.workload)
    check_positions(training.workload)
    started = time.perf_counter()
    bounds = run_bounds(request)
    runs = _read_runs(request)
    own = None if runs is None else runs.own
    needed = _gpus_needed(request, own) if request.gpus_needed else None
    if needed is not None:
        request = _with_gpus(request, needed.gpus or needed.nearest)
    cluster = request.training.cluster
    price = choose_price(price_of_gpu(request, cluster), cluster)
    question = Question(
        training=Training(workload=training.workload, machine=machine_of(cluster), runs=own),
        world=len(cluster.devices),
        limits=plan_limits(request, price, len(cluster.devices)),
        degrees=_degrees(request),
        most=request.top,
        one_each=request.top is not None,
        rules=layout_rules(request),
        apart_rules=apart_rules(request),
    )
    found = plan_usable_first(question)
    answer = PlanAnswer(
        request=request,
        question=question,
        price=price,
        steps=training_steps(request),
        plan=found,
        seconds=time.perf_counter() - started,
        losers=losers(question, found.best[0]) if request.explain and found.best else (),
        needed=needed,
        measured=runs,
        verifying=verify_plan(question, price, found, bounds) if bounds and found.best else None,
        gains=_gains_of(request.training, found.best[0]) if found.best else (),
    )
    return replace(answer, changes=tuple(_changed_answers(answer)))


def _changed_answers(answer: PlanAnswer) -> Iterator[PlanAnswer]:
    """The nearest trainings that have what is missing, if a layout to use is."""
    question = answer.question
    for training, change in changes_to_use(question, answer.plan, answer.request.training):
        gpus = change.question.world
        request = replace(answer.request, training=training)
        if gpus != answer.question.world:
            nodes = change.question.training.machine.gpus_per_node
            node = answer.cluster.nodes[0]
            cluster = nodes_like(node, gpus // nodes, nodes)
            training = replace(training, cluster=cluster, cluster_text="")
            request = replace(request, training=training)
        yield replace(
            answer,
            request=request,
            question=change.question,
            plan=replace(answer.plan, best=(change.planned,), apart=()),
        )


def _gains_of(training: TrainingRequest, one: Planned) -> tuple[FormatGain, ...]:
    layers, workload = one.recompute_layers, training.workload
    asked = Proposal(layout=one.layout, workload=workload, recompute_layers=layers)
    return layout_format_gains(training, asked)


def _read_runs(request: PlanRequest) -> TrainingRuns | None:
    if request.measured is None:
        return None
    cluster, workload = request.training.cluster, request.training.workload
    training = Training(workload=workload, machine=machine_of(cluster))
    band = log_band(training, Layout())
    return read_training_runs(request.measured, training, band, len(cluster.nodes))


def _degrees(request: PlanRequest) -> Degrees:
    """All of a layout's choices; a CPU's memory is its host's, so nothing is offloaded from it."""
    keeps_states = request.exclude_offload or is_cpu(request.training.cluster)
    return Degrees(offload=(Offload.NONE,)) if keeps_states else Degrees()


def plan_clusters(request: PlanRequest) -> tuple[PlanAnswer, ...]:
    """The best layout on each cluster, the best cluster first; those without one come last.

    Raises:
        ConfigError: as for one cluster.
    """
    workload = request.training.workload
    trainings = (request.training, *(replace(one, workload=workload) for one in request.others))
    answers = [
        plan_answer(replace(request, training=training, others=(), top=1))
        for training in trainings
    ]

    def order(answer: PlanAnswer) -> tuple[bool, float]:
        best = next(iter(answer.plan.best), None)
        if best is None:
            return True, 0.0
        usd = answer.usd_per_step(best)
        return False, usd if request.objective == Goal.COST and usd is not None else best.step_s

    return tuple(sorted(answers, key=order))


def _gpus_needed(request: PlanRequest, own: OwnRuns | None) -> GpuCount:
    """Layouts leave the headroom and offload nothing.

    Raises:
        ConfigError: the cluster has several nodes, or no GPU.
    """
    training = request.training
    if is_cpu(training.cluster):
        raise ConfigError("--gpus-needed counts GPUs, but --cluster local is a CPU here.")
    if len(training.cluster.nodes) > 1:
        raise ConfigError(
            f"--gpus-needed counts nodes itself; give one with --cluster, not "
            f"{len(training.cluster.nodes)}."
        )
    one = ClusterSpec(nodes=(whole_node(training.cluster.nodes[0]),))
    price = choose_price(price_of_gpu(request, one), one)

    def limits_of(gpus: int) -> Limits:
        limits = plan_limits(request, price, gpus)
        return replace(limits, memory_bytes=limits.safe_bytes, headroom=0.0)

    question = Question(
        training=Training(workload=training.workload, machine=machine_of(one), runs=own),
        world=1,
        limits=limits_of(1),
        degrees=Degrees(offload=(Offload.NONE,)),
        rules=layout_rules(request),
    )
    return fewest_gpus(question, limits_of)


def _with_gpus(request: PlanRequest, gpus: int) -> PlanRequest:
    """The training on so many GPUs, in nodes like the request's."""
    node = whole_node(request.training.cluster.nodes[0])
    each = len(node.devices)
    cluster = nodes_like(node, max(1, gpus // each), min(each, gpus))
    return replace(request, training=replace(request.training, cluster=cluster, cluster_text=""))
