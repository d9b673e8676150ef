"""The answers of ``fit`` and ``plan`` as values. Not: their text (views)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from autoconf_launch.autotuner.cost import (
    ALL_LAYERS,
    LayoutColumns,
    Proposal,
    Remedy,
    StageMemory,
    Verdict,
    broken_rule,
    memory_bytes,
    remedies,
    verdict,
)
from autoconf_launch.autotuner.planner import Limits, Loser, Plan, Question, Training, losers
from autoconf_launch.autotuner.planner import plan as planned
from autoconf_launch.core import Architecture, ClusterSpec, ConfigError, Layout, Workload

from .cluster_choice import ChosenPrice, choose_cluster, choose_price, proposal_step_s
from .fit_flags import FitRequest, Goal, PlanRequest
from .model_choice import model_of_flags
from .training_choice import choose_training, machine_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer:
    """All that the two forms of the report say.

    ``memory`` has one row for each stage; ``step_s`` is a step of the layout as asked, were memory
    no limit, None where no time model covers it.
    """

    cluster: ClusterSpec
    asked: Proposal
    memory: StageMemory
    limit_bytes: int
    verdict: Verdict
    step_s: float | None
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """All that the forms of the report say.

    Attributes:
        steps: of the whole training; None where no tokens were given.
        seconds: that enumerating, pricing and ranking took.
        losers: empty unless asked for.
    """

    request: PlanRequest
    cluster: ClusterSpec
    workload: Workload
    price: ChosenPrice | None
    steps: int | None
    plan: Plan
    seconds: float
    losers: tuple[Loser, ...]


def fit_answer(request: FitRequest, known: Architecture | None = None) -> FitAnswer:
    """Read names and files, predict, and look for remedies.

    Args:
        request: the flags.
        known: the model, where flags do not say it.

    Raises:
        ConfigError: an unknown name or an impossible layout.
    """
    training = request.training
    architecture = known or model_of_flags(training.model, dict(training.shapes))
    cluster = choose_cluster(request.training.cluster)
    asked = _proposal(request, architecture, cluster)
    columns = LayoutColumns.from_layouts([asked.layout], [asked.recompute_layers])
    if why := broken_rule(asked.layout, columns, architecture, request.training.sequence):
        raise ConfigError(f"{why}.")
    stages = np.arange(request.pipeline)[:, None]
    memory = memory_bytes(columns, asked.workload, stages)
    limit_bytes = request.training.memory_bytes or cluster.least_memory_bytes
    answer = verdict(float(memory.total_SC.max()), limit_bytes)
    node = min(len(node.devices) for node in cluster.nodes)
    found: tuple[Remedy, ...] = ()
    seconds = partial(proposal_step_s, cluster)
    if answer is Verdict.NO:
        found = remedies(asked, limit_bytes, node, seconds)
    return FitAnswer(
        cluster=cluster,
        asked=asked,
        memory=memory,
        limit_bytes=limit_bytes,
        verdict=answer,
        step_s=seconds([asked])[0],
        remedies=found,
    )


def _proposal(request: FitRequest, architecture: Architecture, cluster: ClusterSpec) -> Proposal:
    """The layout with data parallelism and accumulation from the cluster and the global batch."""
    world, others = len(cluster.devices), request.tensor * request.pipeline * request.context
    if world % others:
        valid = " ".join(str(n) for n in range(1, min(world, 4096) + 1) if world % n == 0)
        raise ConfigError(
            f"tp={request.tensor} x pp={request.pipeline} x cp={request.context} = {others} does "
            f"not divide {world} GPUs; valid products: {valid}."
        )
    data = world // others
    once = data * request.micro_batch
    if request.training.global_batch % once:
        raise ConfigError(
            f"--global-batch {request.training.global_batch} is not a multiple of micro-batch "
            f"{request.micro_batch} x {data} data-parallel ranks = {once}; "
            f"valid: {once}, {2 * once}, {3 * once}, …"
        )
    layout = Layout(
        data_parallel=data,
        tensor_parallel=request.tensor,
        pipeline_parallel=request.pipeline,
        virtual_pipeline=request.virtual,
        context_parallel=request.context,
        expert_parallel=request.expert,
        zero_stage=request.zero,
        micro_batch=request.micro_batch,
        accumulation=request.training.global_batch // once,
        recompute=request.recompute,
        sequence_parallel=request.sequence_parallel,
        offload=request.offload,
    )
    layers = request.recompute_layers
    return Proposal(
        layout=layout,
        workload=choose_training(request.training, architecture, cluster),
        recompute_layers=ALL_LAYERS if layers is None else layers,
    )


def plan_answer(
    request: PlanRequest, known: Architecture | None = None
) -> tuple[Question, PlanAnswer]:
    """Read names and files, and plan.

    Args:
        request: the flags.
        known: the model, where flags do not say it.

    Raises:
        ConfigError: an unknown name, unequal nodes, or no price where one is needed.
    """
    asked = request.training
    architecture = known or model_of_flags(asked.model, dict(asked.shapes))
    cluster = choose_cluster(asked.cluster)
    require_equal_nodes(cluster)
    workload = choose_training(asked, architecture, cluster)
    price = choose_price(request.usd_per_gpu_hour, cluster)
    question = Question(
        training=Training(workload=workload, machine=machine_of(cluster)),
        world=len(cluster.devices),
        global_batch=asked.global_batch,
        limits=_limits(request, cluster, price),
        most=request.top,
    )
    started = time.perf_counter()
    found = planned(question)
    return question, PlanAnswer(
        request=request,
        cluster=cluster,
        workload=workload,
        price=price,
        steps=_steps(request),
        plan=found,
        seconds=time.perf_counter() - started,
        losers=losers(question, found.best[0]) if request.explain and found.best else (),
    )


def _limits(request: PlanRequest, cluster: ClusterSpec, price: ChosenPrice | None) -> Limits:
    steps = _steps(request)
    return Limits(
        memory_bytes=request.training.memory_bytes or cluster.least_memory_bytes,
        deadline_step_s=_deadline(request, steps),
        cost_step_s=_affordable(request, steps, price, len(cluster.devices)),
    )


def require_equal_nodes(cluster: ClusterSpec) -> None:
    """Refuse a cluster that ``plan`` cannot rank layouts of.

    Raises:
        ConfigError: its nodes, links or prices differ.
    """
    if cluster.are_nodes_equal and len({device.name for device in cluster.devices}) == 1:
        return
    kinds = {f"{len(node.devices)}x{node.devices[0].name}" for node in cluster.nodes}
    raise ConfigError(
        f"plan ranks layouts of equal nodes, but this cluster mixes {', '.join(sorted(kinds))} "
        "or their links and prices; plan each kind of node by itself."
    )


def _steps(request: PlanRequest) -> int | None:
    if request.tokens is None:
        return None
    return math.ceil(request.tokens / (request.training.global_batch * request.training.sequence))


def _deadline(request: PlanRequest, steps: int | None) -> float:
    if request.deadline_s is None or steps is None:
        return math.inf
    return request.deadline_s / steps


def _affordable(
    request: PlanRequest, steps: int | None, price: ChosenPrice | None, world: int
) -> float:
    """The longest step that the money lasts for; all GPUs are paid for whatever the layout."""
    if price is None and (request.max_cost_usd is not None or request.goal is Goal.COST):
        raise ConfigError(
            "No price of this GPU is known, but the objective or --max-cost needs one; give it "
            "with --usd-per-gpu-hour."
        )
    if request.max_cost_usd is None or steps is None or price is None:
        return math.inf
    return request.max_cost_usd / steps / (world * price.usd_per_gpu_hour / 3600)
