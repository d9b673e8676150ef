"""The answer of ``plan`` as a value. Not: its text (report)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autoconf_launch.autotuner.cost import EAGER_BAND, FormatGain, Proposal
from autoconf_launch.autotuner.mixed import placement
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
from ..machine import is_cpu
from ..measurements import TrainingRuns, read_training_runs
from .requests import PlanRequest
from .runnable import (
    RowState,
    apart_rules,
    changes_to_use,
    layout_rules,
    plan_limits,
    row_states,
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
    one_node,
    require_equal_nodes,
    require_rates,
    usual_trainer,
    whole_node,
)
from .verifying import Verifying, log_band, run_bounds, verify_plan

if TYPE_CHECKING:  # with the search on unlike nodes, which equal ones do not wait for
    from autoconf_launch.autotuner.mixed import MachineKind

    from .parts import RankedParts


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """All that the forms of the report say.

    Attributes:
        prices: of each of the cluster's kinds of node; None where none is known.
        steps: of the whole training; None where no tokens were given.
        plan: ``best`` are the layouts to use, the best one first; ``apart`` are faster ones that
            are plan-only or were never checked.
        seconds: that enumerating, pricing and ranking took.
        question: of a search by a known architecture on equal nodes, else None.
        parts: where parts of the cluster are ranked, stage by stage, what is known besides.
        losers: empty unless asked for.
        needed: where the number of GPUs was asked for; the request's cluster then has so many, or
            as many as come nearest.
        measured: runs that correct the steps, where some were given.
        verifying: runs that would narrow the first row's band, where they were asked for.
        gains: formats in which products that run in fp32 would be faster, in the first layout.
        changes: the nearest trainings that fit, where no layout that fits runs and was checked.
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
        """The training."""
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
        """Share of memory that is to stay free; of parts 0 if no layout leaves it."""
        return self.request.headroom if self.parts is None else self.parts.question.headroom

    def bands(self, rows: Sequence[Planned]) -> list[StepBand]:
        """How far off each layout's predicted step may be."""
        if self.parts is not None:
            return [self.parts.band(one) for one in rows]
        if self.question is None:
            return [StepBand(error=EAGER_BAND) for _ in rows]
        training, found = self.question.training, dict[tuple[Offload, float], StepBand]()
        for one in rows:
            if (key := (one.layout.offload, one.narrowing)) not in found:
                found[key] = planned_band(training, one)
        return [found[one.layout.offload, one.narrowing] for one in rows]

    def states(self, rows: Sequence[Planned]) -> list[RowState]:
        if self.script:
            return [RowState("with the script") for _ in rows]
        training, apart = self.request.training, apart_rules(self.request)
        return row_states(training, [one.plan_only_by for one in rows], apart)

    def layout(self, one: Planned) -> Layout:
        """A row's layout, with the slot of each rank where they are not in the cluster's order."""
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
    """Plan: rank all layouts of equal nodes, or the parts of a cluster stage by stage.

    Raises:
        ConfigError: no price where one is needed, a precision that not all GPUs compute in, or
            too many parts of the cluster.
    """
    training, cluster = request.training, request.training.cluster
    asks = request.pareto or request.layer_times is not None
    if not asks and request.csv_form != CsvForm.FASOP and cluster.are_nodes_equal:
        return _equal_answer(request)
    from .parts import rank_parts

    refuse_runs(request)
    _check(training)
    started, prices = time.perf_counter(), chosen_prices(request)
    found, parts = rank_parts(request, prices)
    return PlanAnswer(
        request=request,
        prices=prices,
        steps=training_steps(request),
        plan=found,
        seconds=time.perf_counter() - started,
        parts=parts,
    )


def _check(training: TrainingRequest) -> None:
    require_rates(training.cluster)
    check_precision(training.workload.precision, training.cluster)
    check_weights(training.workload)
    check_positions(training.workload)


def refuse_runs(request: PlanRequest) -> None:
    """Real runs correct what is predicted by a model's shapes on equal nodes.

    Raises:
        ConfigError: there are some, or some are asked for.
    """
    flags = ("--measured", "--verify", "--verify-budget")
    for flag in (name for name in flags if name in request.training.given):
        raise ConfigError(
            f"{flag} needs a --model whose architecture is known and equal nodes; omit it."
        )


def _equal_answer(request: PlanRequest) -> PlanAnswer:
    require_equal_nodes(request.training.cluster)
    _check(request.training)
    started = time.perf_counter()
    bounds, prices = run_bounds(request), chosen_prices(request)
    runs = _read_runs(request)
    own = None if runs is None else runs.own
    needed = _gpus_needed(request, own) if request.gpus_needed else None
    if needed is not None:
        request = _with_gpus(request, needed.gpus or needed.nearest)
        prices = chosen_prices(request)
    cluster, (price,) = request.training.cluster, prices
    question = Question(
        training=Training(
            workload=request.training.workload, machine=machine_of(cluster), runs=own
        ),
        world=len(cluster.devices),
        limits=plan_limits(request, price, len(cluster.devices)),
        degrees=_degrees(request),
        most=request.top,
        one_each=request.top is not None,
        rules=layout_rules(request),
        apart_rules=apart_rules(request),
        usd_per_gpu_hour=None if price is None else price.usd_per_gpu_hour,
    )
    found = plan_usable_first(question)
    answer = PlanAnswer(
        request=request,
        prices=prices,
        steps=training_steps(request),
        plan=found,
        seconds=time.perf_counter() - started,
        question=question,
        losers=losers(question, found.best[0]) if request.explain and found.best else (),
        needed=needed,
        measured=runs,
        verifying=verify_plan(question, found, bounds) if bounds and found.best else None,
        gains=_gains_of(request.training, found.best[0]) if found.best else (),
    )
    return replace(answer, changes=tuple(_changed_answers(answer, question)))


def _changed_answers(answer: PlanAnswer, question: Question) -> Iterator[PlanAnswer]:
    """The nearest trainings that have what is missing, if a layout to use is."""
    for training, change in changes_to_use(question, answer.plan, answer.request.training):
        gpus = change.question.world
        request = replace(answer.request, training=training)
        if gpus != question.world:
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
    price = _price(request, one.kinds[0])

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


def chosen_prices(request: PlanRequest) -> tuple[ChosenPrice | None, ...]:
    """Prices of a GPU of each kind of node; None where none is known.

    Raises:
        ConfigError: none is known but one is needed, or one is given for GPUs that differ.
    """
    return tuple(_price(request, kind) for kind in request.training.cluster.kinds)


def _price(request: PlanRequest, kind: NodeKind) -> ChosenPrice | None:
    is_alone = request.training.cluster.are_nodes_equal
    if request.usd_per_gpu_hour is not None and not is_alone:
        raise ConfigError(
            "--usd-per-gpu-hour is one price, but this cluster mixes GPUs; give --price "
            f"{kind.gpu}=USD for each of them."
        )
    given = dict(request.prices).get(kind.gpu)
    if given is not None:
        given = given * kind.node.rented_slots / len(kind.node.devices)
    given = request.usd_per_gpu_hour if given is None else given
    found = choose_price(given, one_node(kind.node))
    asks = {
        "--pareto": request.pareto,
        "--max-cost": request.max_cost_usd is not None,
        "--objective cost": request.objective == Goal.COST,
    }
    if found is None and any(asks.values()):
        flag = "--usd-per-gpu-hour USD" if is_alone else f"--price {kind.gpu}=USD"
        raise ConfigError(
            f"No price of {kind.gpu} is known, but {next(filter(asks.get, asks))} needs one; give "
            f"it with {flag} (an hour of one GPU)."
        )
    return found
