"""``plan``: every layout of a training, ruled out or ranked. Not: whether one of them fits (fit).

``plan --model M --cluster C --seq S --global-batch B [flags]``
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoconf_launch.autotuner import ClusterSpec
from autoconf_launch.autotuner.cost.training_setup import TrainingSetup
from autoconf_launch.autotuner.layouts.pricing import Training
from autoconf_launch.autotuner.layouts.reasons import Loser, losers
from autoconf_launch.autotuner.layouts.search import Limits, Plan, Question
from autoconf_launch.autotuner.layouts.search import plan as planned
from autoconf_launch.core import Architecture, ConfigError, NothingFeasibleError

from ..planner.cluster_choice import choose_cluster
from ..planner.model_choice import choose_model
from ..planner.no_plan import why_nothing
from ..planner.plan_flags import Goal, PlanRequest, parse_plan
from ..planner.price_choice import ChosenPrice, choose_price
from ..planner.training_choice import choose_training, machine_of, workload_of
from ..views.plan_csv import plan_csv
from ..views.plan_text import plan_document, plan_text


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """All that the forms of the report say.

    Attributes:
        steps: of the whole training; None where no tokens were given.
        seconds: that enumerating, pricing and ranking took.
        losers: empty unless asked for.
    """

    request: PlanRequest
    architecture: Architecture
    cluster: ClusterSpec
    setup: TrainingSetup
    price: ChosenPrice | None
    steps: int | None
    plan: Plan
    seconds: float
    losers: tuple[Loser, ...]


def plan(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, an unknown name, unequal nodes, an unwritable file.
        NothingFeasibleError: no layout fits or is within the limits; all has been yielded by then.
    """
    request = parse_plan(arguments)
    question, answer = answer_of(request)
    if request.csv is not None:
        _write(request, answer)
    yield plan_document(answer) if request.json else plan_text(answer)
    if not answer.plan.best:
        raise NothingFeasibleError(why_nothing(question, answer))


def answer_of(request: PlanRequest) -> tuple[Question, PlanAnswer]:
    """Read names and files, and plan.

    Raises:
        ConfigError: an unknown name, unequal nodes, or no price where one is needed.
    """
    architecture = choose_model(request.model, dict(request.shapes))
    cluster = choose_cluster(request.cluster)
    _check_equal(cluster)
    setup = choose_training(request, cluster)
    price = choose_price(request.usd_per_gpu_hour, cluster)
    nodes = machine_of(cluster)
    training = Training(
        architecture=architecture,
        setup=setup,
        workload=workload_of(architecture, setup, nodes),
        machine=nodes,
    )
    world = len(cluster.devices)
    steps = _steps(request)
    question = Question(
        training=training,
        world=world,
        global_batch=request.global_batch,
        limits=Limits(
            memory_bytes=request.memory_bytes or cluster.least_memory_bytes,
            deadline_step_s=_deadline(request, steps),
            cost_step_s=_affordable(request, steps, price, world),
        ),
        most=request.top,
    )
    started = time.perf_counter()
    found = planned(question)
    seconds = time.perf_counter() - started
    explained = request.explain and bool(found.best)
    return question, PlanAnswer(
        request=request,
        architecture=architecture,
        cluster=cluster,
        setup=setup,
        price=price,
        steps=steps,
        plan=found,
        seconds=seconds,
        losers=losers(question, found.best[0]) if explained else (),
    )


def _check_equal(cluster: ClusterSpec) -> None:
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
    return math.ceil(request.tokens / (request.global_batch * request.sequence))


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


def _write(request: PlanRequest, answer: PlanAnswer) -> None:
    assert request.csv is not None
    try:
        with request.csv.open("w", newline="", encoding="utf-8") as file:
            plan_csv(answer, file)
    except OSError as error:
        raise ConfigError(f"--csv {request.csv} cannot be written: {error.strerror}.") from error
