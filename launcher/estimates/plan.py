"""The answer of ``plan`` as a value. Not: its text (report)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.cost import EAGER_BAND, FormatGain, LayoutRule, Machine, Proposal
from autoconf_launch.autotuner.mixed import MachineKind, placement
from autoconf_launch.autotuner.planner import (
    GpuCount,
    Limits,
    Loser,
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
from autoconf_launch.core import (
    ClusterSpec,
    ConfigError,
    Degrees,
    Layout,
    NodeKind,
    Offload,
    Workload,
)

from ..asked import CsvForm, Goal
from ..measurements import TrainingRuns, read_training_runs
from .clusters import ChosenPrice, equal_machines, layout_format_gains, whole_node, with_gpus
from .parts import RankedParts, rank_parts
from .requests import PlanRequest, TrainingRequest
from .trainers import (
    BY_SCRIPT,
    RowState,
    apart_rules,
    changes_to_use,
    ranking_rules,
    row_states,
    usual_trainer,
)
from .verifying import Verifying, log_band, verify_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """The answer that all forms of the report show.

    Attributes:
        prices: price for each of the cluster's kinds of node; None if unknown.
        steps: steps of the whole training; None without tokens.
        plan: ``best`` are the layouts to use, the best one first; ``apart`` are faster layouts
            that are plan-only or were never checked.
        seconds: duration of enumerating, pricing and ranking.
        question: the search by a known architecture on equal nodes, else None.
        parts: facts on the parts of the cluster if these are ranked, stage by stage.
        losers: empty unless requested.
        needed: the number of GPUs if requested; the request's cluster then has this many, or
            the nearest number.
        measured: runs that correct the steps, if given.
        verifying: runs that would narrow the first row's band, if requested.
        gains: formats in which products that run in fp32 would be faster, in the first layout.
        changes: the nearest trainings that fit, if no layout that fits runs and was checked.
        script: name of the script whose model is known by its pieces; empty for other models.
    """

    request: PlanRequest
    prices: tuple[ChosenPrice | None, ...]
    steps: int | None
    plan: Plan
    seconds: float
    question: Question | None = None
    parts: RankedParts | None = None
    losers: tuple[Loser, ...] = ()
    needed: GpuCount | None = None
    measured: TrainingRuns | None = None
    verifying: Verifying | None = None
    gains: tuple[FormatGain, ...] = ()
    changes: tuple[PlanAnswer, ...] = ()
    script: str = ""

    @property
    def workload(self) -> Workload:
        return self.request.training.workload

    @property
    def cluster(self) -> ClusterSpec:
        return self.request.training.cluster

    @property
    def kinds(self) -> Sequence[NodeKind | MachineKind]:
        """Kinds of the cluster's nodes, to which numbers in rows refer."""
        return self.cluster.kinds if self.parts is None else self.parts.question.kinds

    @property
    def node_usd_per_hour(self) -> list[float | None]:
        """Price of a node of each kind."""
        nodes = zip(self.cluster.kinds, self.prices, strict=True)
        return [
            None if price is None else price.usd_per_gpu_hour * len(kind.node.devices)
            for kind, price in nodes
        ]

    @property
    def shown(self) -> tuple[Planned, ...]:
        """All rows in the order of their numbers."""
        return (*self.plan.best, *self.plan.apart)

    @property
    def headroom(self) -> float:
        return self.request.headroom if self.parts is None else self.parts.question.headroom

    def bands(self, rows: Sequence[Planned]) -> list[StepBand]:
        if self.parts is not None:
            return [self.parts.band(one) for one in rows]
        if self.question is None:
            return [StepBand(error=EAGER_BAND) for _ in rows]
        training, found = self.question.training, dict[tuple[Offload, bool, float], StepBand]()
        keys = [
            (one.layout.offload, one.layout.pipeline_parallel > 1, one.narrowing) for one in rows
        ]
        for key, one in zip(keys, rows, strict=True):
            if key not in found:
                found[key] = planned_band(training, one)
        return [found[key] for key in keys]

    def states(self, rows: Sequence[Planned]) -> list[RowState]:
        if self.script:
            return [RowState("with the script") for _ in rows]
        training, apart = self.request.training, apart_rules(self.request)
        return row_states(training, [one.plan_only_by for one in rows], apart)

    def layout(self, one: Planned) -> Layout:
        if not one.order:
            return one.layout
        slots = placement(self.cluster, one.order)
        is_plain = slots == tuple(range(len(slots)))
        return replace(one.layout, placement=None if is_plain else slots)

    def trainer_by_flags(self, changed: PlanAnswer) -> str:
        """The trainer that a changed training would get were only its other flags typed."""
        own, gpus = self.request.training, [device.name for device in changed.cluster.devices]
        if "--trainer" in own.given or self.request.runnable or own.trainer.why == BY_SCRIPT:
            return own.trainer.name
        return usual_trainer(changed.workload, gpus).name


def plan_answer(request: PlanRequest) -> PlanAnswer:
    """Rank all layouts on equal nodes, or the parts of a cluster stage by stage.

    Raises:
        ConfigError: a needed price is unknown, a precision that not all GPUs compute in, or
            too many parts of the cluster.
    """
    asks = request.pareto or request.layer_times is not None
    is_equal = request.training.cluster.are_nodes_equal
    if not asks and request.csv_form != CsvForm.FASOP and is_equal:
        return _equal_answer(request)
    refuse_runs(request)
    started = time.perf_counter()
    found, parts, prices = rank_parts(request)
    return PlanAnswer(
        request=request,
        prices=prices,
        steps=request.steps,
        plan=found,
        seconds=time.perf_counter() - started,
        parts=parts,
    )


def refuse_runs(request: PlanRequest) -> None:
    """Refuse real runs, which correct only predictions by a model's shapes on equal nodes.

    Raises:
        ConfigError: runs are given or requested.
    """
    flags = ("--measured", "--verify", "--verify-budget")
    for flag in (name for name in flags if name in request.training.given):
        raise ConfigError(
            f"{flag} is only for the usual ranking of a --model with a known architecture on "
            f"equal nodes; omit {flag}."
        )


def _equal_answer(request: PlanRequest) -> PlanAnswer:
    machine, prices = equal_machines(request)
    started = time.perf_counter()
    runs = _read_runs(request, machine)
    training = Training(
        workload=request.training.workload,
        machine=machine,
        runs=None if runs is None else runs.own,
    )
    rules, apart = ranking_rules(request)
    needed = None
    if request.gpus_needed:
        needed, request = _with_gpus_needed(request, training, rules)
        machine, prices = equal_machines(request)
    world, price = len(request.training.cluster.devices), prices[0]
    # the memory of a CPU is its host's, so nothing is offloaded from it
    keeps_states = request.exclude_offload or machine.accelerator.is_cpu
    question = Question(
        training=replace(training, machine=machine),
        world=world,
        limits=_limits(request, price, world),
        degrees=Degrees(offload=(Offload.NONE,)) if keeps_states else Degrees(),
        most=request.top,
        one_each=request.top is not None,
        rules=rules,
        apart_rules=apart,
        usd_per_gpu_hour=None if price is None else price.usd_per_gpu_hour,
    )
    found = plan_usable_first(question)
    can_offload = Offload.ACTIVATIONS in request.training.abilities.offload
    if can_offload and not (found.fit or keeps_states):
        question = replace(question, degrees=Degrees(offload=tuple(Offload)))
        found = plan_usable_first(question)
    answer = PlanAnswer(
        request=request,
        prices=prices,
        steps=request.steps,
        plan=found,
        seconds=time.perf_counter() - started,
        question=question,
        losers=losers(question, found.best[0]) if request.explain and found.best else (),
        needed=needed,
        measured=runs,
        verifying=verify_plan(question, found, request),
        gains=_gains_of(request.training, found.best[0]) if found.best else (),
    )
    return replace(answer, changes=tuple(_changed_answers(answer, question)))


def _changed_answers(answer: PlanAnswer, question: Question) -> Iterator[PlanAnswer]:
    """Answers for the nearest trainings that have a layout to use, if this one has none."""
    for training, change in changes_to_use(question, answer.plan, answer.request.training):
        request = replace(answer.request, training=training)
        is_without = change.question.degrees != question.degrees or request.exclude_offload
        request = replace(request, exclude_offload=is_without)
        if change.question.world != question.world:
            nodes = change.question.training.machine.gpus_per_node
            request = with_gpus(request, answer.cluster.nodes[0], change.question.world, nodes)
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


def _read_runs(request: PlanRequest, machine: Machine) -> TrainingRuns | None:
    if request.measured is None:
        return None
    training = Training(workload=request.training.workload, machine=machine)
    nodes = len(request.training.cluster.nodes)
    return read_training_runs(request.measured, training, log_band(training, Layout()), nodes)


def plan_clusters(request: PlanRequest) -> tuple[PlanAnswer, ...]:
    """The best layout on each cluster, the best cluster first; those without one come last.

    Raises:
        ConfigError: as for one cluster.
    """
    workload = request.training.workload
    trainings = (request.training, *(replace(one, workload=workload) for one in request.others))
    answers = [
        _equal_answer(replace(request, training=training, others=(), top=1))
        for training in trainings
    ]

    def order(answer: PlanAnswer) -> tuple[bool, float]:
        best = next(iter(answer.plan.best), None)
        if best is None:
            return True, 0.0
        usd = best.usd_per_step
        return False, usd if request.objective == Goal.COST and usd is not None else best.step_s

    return tuple(sorted(answers, key=order))


def _with_gpus_needed(
    request: PlanRequest, training: Training, rules: Sequence[LayoutRule]
) -> tuple[GpuCount, PlanRequest]:
    """The number of GPUs needed, and the question on them; layouts leave the headroom.

    Raises:
        ConfigError: the cluster has several nodes, or no GPU.
    """
    nodes = request.training.cluster.nodes
    if training.machine.accelerator.is_cpu:
        raise ConfigError("--gpus-needed counts GPUs, but --cluster local is a CPU here.")
    if len(nodes) > 1:
        raise ConfigError(
            f"--gpus-needed counts nodes itself; give one with --cluster, not {len(nodes)}."
        )
    node = whole_node(nodes[0])
    each = len(node.devices)
    machine, (price,) = equal_machines(with_gpus(request, node, each, each))

    def limits_of(gpus: int) -> Limits:
        limits = _limits(request, price, gpus)
        return replace(limits, memory_bytes=limits.safe_bytes, headroom=0.0)

    question = Question(
        training=replace(training, machine=machine),
        world=1,
        limits=limits_of(1),
        degrees=Degrees(offload=(Offload.NONE,)),
        rules=tuple(rules),
    )
    needed = fewest_gpus(question, limits_of)
    return needed, with_gpus(request, node, needed.gpus or needed.nearest, each)


def _limits(request: PlanRequest, price: ChosenPrice | None, gpus: int) -> Limits:
    """Memory of a GPU, and the longest step within the limits of time and money.

    All GPUs are paid for, whatever the layout.
    """
    longest_s, most_usd = request.budget.step_limits(request.training.workload.batch_tokens)
    return Limits(
        memory_bytes=request.training.limit_bytes,
        headroom=request.headroom,
        deadline_step_s=longest_s,
        cost_step_s=math.inf
        if price is None
        else most_usd / (gpus * price.usd_per_gpu_hour / 3600),
    )
