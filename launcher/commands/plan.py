"""``plan``: every layout of a training, ruled out or ranked. Not: whether one of them fits (fit).

``plan --model M --cluster C --seq S --global-batch B [flags]``, or for a script as it is
``plan --cluster C [flags] -- python train.py …``
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoconf_launch.autotuner.cost.training_setup import TrainingSetup
from autoconf_launch.autotuner.layouts.pricing import Training
from autoconf_launch.autotuner.layouts.reasons import Loser, losers
from autoconf_launch.autotuner.layouts.search import Limits, Plan, Question
from autoconf_launch.autotuner.layouts.search import plan as planned
from autoconf_launch.core import Architecture, ClusterSpec, ConfigError, NothingFeasibleError

from ..planner.cluster_choice import choose_cluster
from ..planner.model_choice import choose_model
from ..planner.no_plan import why_nothing
from ..planner.plan_flags import Goal, PlanRequest, parse_plan
from ..planner.price_choice import ChosenPrice, choose_price
from ..planner.training_choice import choose_training, machine_of, workload_of
from ..traced.asking import ask_plan, pieces_question
from ..traced.command import divided
from ..traced.planning import plan_by_pieces, why_no_pieces
from ..traced.script import TracedScript
from ..views.pieces_text import pieces_plan_document, pieces_plan_text
from ..views.plan_csv import plan_csv
from ..views.plan_text import plan_document, plan_json, plan_text
from ..views.script_text import script_document, script_text


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
    own, command = divided(arguments)
    if command is not None:
        yield from _plan_script(own, command)
        return
    yield from _plan_known(parse_plan(own), None)


def _plan_script(own: Sequence[str], command: Sequence[str]) -> Iterator[str]:
    request, script, cluster = ask_plan(own, command)
    if script.architecture is not None:
        yield from _plan_known(request, script)
        return
    _check_equal(cluster)
    found = plan_by_pieces(request, pieces_question(request.training, own, script, cluster))
    price = choose_price(request.usd_per_gpu_hour, cluster)
    hourly = None if price is None else price.usd_per_gpu_hour
    as_json = request.training.json
    yield pieces_plan_document(found, hourly) if as_json else pieces_plan_text(found)
    if not found.best:
        raise NothingFeasibleError(why_no_pieces(found))


def _plan_known(request: PlanRequest, script: TracedScript | None) -> Iterator[str]:
    question, answer = answer_of(request, None if script is None else script.architecture)
    if request.csv is not None:
        _write(request, answer)
    if request.training.json:
        section = {} if script is None else {"script": script_document(script)}
        yield plan_json({**plan_document(answer), **section})
    else:
        text = plan_text(answer)
        yield text if script is None else f"{script_text(script)}\n\n{text}"
    if not answer.plan.best:
        raise NothingFeasibleError(why_nothing(question, answer))


def answer_of(
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
    architecture = known or choose_model(asked.model, dict(asked.shapes))
    cluster = choose_cluster(asked.cluster)
    _check_equal(cluster)
    setup = choose_training(asked, cluster)
    price = choose_price(request.usd_per_gpu_hour, cluster)
    question = Question(
        training=_training(architecture, setup, cluster),
        world=len(cluster.devices),
        global_batch=asked.global_batch,
        limits=_limits(request, cluster, price),
        most=request.top,
    )
    started = time.perf_counter()
    found = planned(question)
    return question, PlanAnswer(
        request=request,
        architecture=architecture,
        cluster=cluster,
        setup=setup,
        price=price,
        steps=_steps(request),
        plan=found,
        seconds=time.perf_counter() - started,
        losers=losers(question, found.best[0]) if request.explain and found.best else (),
    )


def _training(architecture: Architecture, setup: TrainingSetup, cluster: ClusterSpec) -> Training:
    nodes = machine_of(cluster)
    return Training(
        architecture=architecture,
        setup=setup,
        workload=workload_of(architecture, setup, nodes),
        machine=nodes,
    )


def _limits(request: PlanRequest, cluster: ClusterSpec, price: ChosenPrice | None) -> Limits:
    steps = _steps(request)
    return Limits(
        memory_bytes=request.training.memory_bytes or cluster.least_memory_bytes,
        deadline_step_s=_deadline(request, steps),
        cost_step_s=_affordable(request, steps, price, len(cluster.devices)),
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


def _write(request: PlanRequest, answer: PlanAnswer) -> None:
    assert request.csv is not None
    try:
        with request.csv.open("w", newline="", encoding="utf-8") as file:
            plan_csv(answer, file)
    except OSError as error:
        raise ConfigError(f"--csv {request.csv} cannot be written: {error.strerror}.") from error
