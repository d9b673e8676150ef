"""The answer of ``plan`` on a cluster whose nodes differ. Not: its text (report)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.mixed import (
    MIXED_DEGREES,
    MachineKind,
    MixedPlan,
    MixedQuestion,
    MixedRow,
    mixed_plan,
    placement,
)
from autoconf_launch.core import ClusterSpec, ConfigError, Layout, Node, NodeKind, Workload

from .answers import layout_rules, training_steps
from .fit_flags import Goal, PlanRequest
from .training_choice import (
    ChosenPrice,
    check_precision,
    check_weights,
    choose_price,
    machine_of,
)
from .training_request import TrainingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedAnswer:
    """All that the forms of the report say.

    Attributes:
        kinds: of the cluster's nodes, in its order, with their prices.
        prices: where each kind's price is from; None where none is known.
        plan: the best layout of each part of the cluster.
        rows: those of them within the limits, best first, as many as were asked for.
        headroom: share of memory that they leave free; 0 where none leaves what was asked for.
        steps: of the whole training; None where no tokens were given.
        seconds: that the search took.
    """

    request: PlanRequest
    question: MixedQuestion
    prices: tuple[ChosenPrice | None, ...]
    plan: MixedPlan
    rows: tuple[MixedRow, ...]
    headroom: float
    steps: int | None
    seconds: float

    @property
    def workload(self) -> Workload:
        """The training."""
        return self.question.workload

    @property
    def kinds(self) -> tuple[MachineKind, ...]:
        """Kinds of the cluster's nodes."""
        return self.question.kinds

    @property
    def whole(self) -> MixedRow | None:
        """The best row on all nodes; None where none fits there."""
        counts = tuple(kind.count for kind in self.kinds)
        return next((row for row in self.plan.best if row.counts == counts), None)

    def layout(self, row: MixedRow) -> Layout:
        """A row's layout, with the slot of each rank where they are not in the cluster's order."""
        slots = placement(self.request.training.cluster, row.order)
        is_plain = slots == tuple(range(len(slots)))
        return replace(row.layout, placement=None if is_plain else slots)


def machine_kinds(
    training: TrainingRequest, prices: Sequence[ChosenPrice | None]
) -> tuple[MachineKind, ...]:
    """What the search knows of each kind of a cluster's nodes.

    Args:
        training: with the cluster, and the memory of a GPU where a flag bounds it.
        prices: of each kind.
    """
    bound = training.limit_bytes if "--memory-limit" in training.given else math.inf
    return tuple(
        _machine_kind(kind, price, bound)
        for kind, price in zip(training.cluster.kinds, prices, strict=True)
    )


def _machine_kind(kind: NodeKind, price: ChosenPrice | None, bound: float) -> MachineKind:
    memory = min(device.memory_bytes for device in kind.node.devices)
    hourly = None if price is None else price.usd_per_gpu_hour * len(kind.node.devices)
    return MachineKind(
        name=kind.name,
        machine=machine_of(one_node(kind.node)),
        count=kind.count,
        memory_bytes=min(memory, bound),
        usd_per_hour=hourly,
    )


def one_node(node: Node) -> ClusterSpec:
    """A cluster of one node."""
    return ClusterSpec(nodes=(node,))


def mixed_answer(request: PlanRequest) -> MixedAnswer:
    """Plan on a mixed cluster.

    Raises:
        ConfigError: a precision that not all GPUs compute in, no price where one is needed, or too
            many parts of the cluster.
    """
    training = request.training
    if request.gpus_needed:
        raise ConfigError("--gpus-needed counts nodes of one kind; give a cluster of one node.")
    check_precision(training)
    check_weights(training.workload)
    started = time.perf_counter()
    prices = tuple(_price(request, kind) for kind in training.cluster.kinds)
    question = MixedQuestion(
        workload=training.workload,
        kinds=machine_kinds(training, prices),
        degrees=MIXED_DEGREES,
        headroom=request.headroom,
        rules=layout_rules(request),
    )
    found, steps = mixed_plan(question), training_steps(request)
    if not found.best and question.headroom:
        question = replace(question, headroom=0.0)
        found = mixed_plan(question)
    rows = [row for row in found.best if _is_within(request, row, steps)]
    if request.goal is Goal.COST:
        rows.sort(key=lambda row: math.inf if row.usd_per_step is None else row.usd_per_step)
    return MixedAnswer(
        request=request,
        question=question,
        prices=prices,
        plan=found,
        rows=tuple(rows[: request.top]),
        headroom=question.headroom,
        steps=steps,
        seconds=time.perf_counter() - started,
    )


def _price(request: PlanRequest, kind: NodeKind) -> ChosenPrice | None:
    if request.usd_per_gpu_hour is not None:
        raise ConfigError(
            "--usd-per-gpu-hour is one price, but this cluster mixes GPUs; give each group of a "
            "cluster file its usd_per_hour."
        )
    found = choose_price(None, one_node(kind.node))
    if found is None and (request.max_cost_usd is not None or request.goal is Goal.COST):
        raise ConfigError(
            f"No price of {kind.gpu} is known, but the objective or --max-cost needs one; give "
            "it as usd_per_hour in a cluster file."
        )
    return found


def _is_within(request: PlanRequest, row: MixedRow, steps: int | None) -> bool:
    if steps is None:
        return True
    usd = row.usd_per_step
    is_late = request.deadline_s is not None and steps * row.step_s > request.deadline_s
    return not is_late and (
        request.max_cost_usd is None or usd is None or steps * usd <= request.max_cost_usd
    )
