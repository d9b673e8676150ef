"""What layouts of a plan must obey: our runtime's rules, limits of time and money.

And the nearest trainings that do where none does. Not: the rules on a layout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from autoconf_launch.autotuner.cost import LayoutColumns, LayoutRule
from autoconf_launch.autotuner.planner import (
    PLAN_RULES,
    RUNTIME_RULES,
    Limits,
    NearestChange,
    Plan,
    Question,
    lighter_trainings,
    nearest_changes,
    plan_only_by,
)
from autoconf_launch.core import (
    BUILTIN_PRECISIONS,
    OPTIMIZERS,
    Architecture,
    ClusterSpec,
    ConfigError,
    Framework,
    Layout,
    Optimizer,
    Precision,
    Workload,
)

from .fit_flags import Goal, PlanRequest
from .training_choice import ChosenPrice, larger_clusters, machine_of
from .training_request import TrainingRequest

UNKNOWN_TRAINING = "runtime_training"
"""The rule on what is trained with, which holds for all layouts alike."""
UNKNOWN_MODEL = "runtime_model"
"""The rule on models of which nobody knows what could be split."""


def plan_only_rule(layout: Layout, recompute_layers: int, workload: Workload) -> str | None:
    """Name of the rule by which our runtime does not run a layout; None: it runs."""
    if not trains_here(workload):
        return UNKNOWN_TRAINING
    if not isinstance(workload.model, Architecture):
        return None if layout.mesh == (1, 1, 1, 1) else UNKNOWN_MODEL
    columns = LayoutColumns.from_layouts([layout], [recompute_layers])
    return plan_only_by(columns, workload.model, workload.sequence_length)


def trains_here(workload: Workload) -> bool:
    """Whether our runtime has the training's precision and optimizer; it has no adapters."""
    precise = workload.precision.configured in BUILTIN_PRECISIONS
    optimizer = workload.optimizer.name in {name.lower() for name in OPTIMIZERS}
    whole = workload.lora_rank is None and not workload.frozen
    return precise and optimizer and whole


def layout_rules(request: PlanRequest) -> tuple[LayoutRule, ...]:
    """What layouts must obey.

    Raises:
        ConfigError: only those that run here are asked for, but no layout of the training does.
    """
    if not request.runnable:
        return PLAN_RULES
    if not trains_here(request.training.workload):
        raise ConfigError(
            "--runnable ranks what our own runtime trains, which is whole models in "
            f"{', '.join(kind.value for kind in BUILTIN_PRECISIONS)} with one of "
            f"{', '.join(sorted(OPTIMIZERS))}; omit it, or change the training."
        )
    return (*PLAN_RULES, *RUNTIME_RULES)


_NEVER_CHECKED = tuple(rule for rule in RUNTIME_RULES if rule.name == "runtime_offload")
"""Layouts of a kind that no published run has."""


def apart_rules(request: PlanRequest) -> tuple[LayoutRule, ...]:
    """Rules whose breakers are not to use first: they do not run here, or were never checked.

    A training that another trainer runs, by a flag or as ours does not, is not held to our rules.
    """
    training = request.training
    return _NEVER_CHECKED if _runs_elsewhere(training) else _rules_of(training.workload)


def _runs_elsewhere(training: TrainingRequest) -> bool:
    framework = training.workload.software.framework
    is_theirs = framework in (Framework.MEGATRON, Framework.DEEPSPEED)
    return "--trainer" in training.given and is_theirs


def _rules_of(workload: Workload) -> tuple[LayoutRule, ...]:
    return RUNTIME_RULES if trains_here(workload) else _NEVER_CHECKED


def changes_to_use(
    question: Question, found: Plan, training: TrainingRequest
) -> tuple[NearestChange, ...]:
    """The nearest trainings with a layout that fits, and runs if the one asked for does not."""
    workload, cluster = question.training.workload, training.cluster
    changes: tuple[NearestChange, ...] = ()
    if found.smallest is not None or found.are_all_apart:
        lighter = [_with_workload(question, one) for one in lighter_trainings(workload)]
        changes = nearest_changes(lighter, _larger(question, cluster))
        if all(one.question.world == question.world for one in changes):
            checked = replace(question, apart_rules=_NEVER_CHECKED)
            changes += nearest_changes((), _larger(checked, cluster))
    if not trains_here(workload) and not _runs_elsewhere(training):
        plain = replace(
            workload,
            precision=_known_precision(workload.precision),
            optimizer=_known_optimizer(workload.optimizer),
            lora_rank=None,
            weight_format=None,
            frozen=frozenset(),
        )
        ours = _with_workload(question, plain)
        changes += nearest_changes((ours,), _larger(ours, cluster))[:1]
    return changes


def _with_workload(question: Question, workload: Workload) -> Question:
    training = replace(question.training, workload=workload)
    return replace(question, training=training, apart_rules=_rules_of(workload))


def _larger(question: Question, cluster: ClusterSpec) -> Iterator[Question]:
    for one in larger_clusters(cluster):
        training = replace(question.training, machine=machine_of(one))
        world, limits = len(one.devices), question.limits
        affordable_s = limits.cost_step_s * question.world / world
        limits = replace(limits, cost_step_s=affordable_s)
        yield replace(question, training=training, world=world, limits=limits)


def _known_precision(precision: Precision) -> Precision:
    return precision if precision.configured in BUILTIN_PRECISIONS else Precision.BF16


def _known_optimizer(optimizer: Optimizer) -> Optimizer:
    is_known = optimizer.name in {name.lower() for name in OPTIMIZERS}
    return optimizer if is_known else Optimizer.from_name("adamw")


def plan_limits(request: PlanRequest, price: ChosenPrice | None, gpus: int) -> Limits:
    """Memory of a GPU, and what time and money allow of a step."""
    steps = training_steps(request)
    return Limits(
        memory_bytes=request.training.limit_bytes,
        headroom=request.headroom,
        deadline_step_s=_deadline(request, steps),
        cost_step_s=_affordable(request, steps, price, gpus),
    )


def training_steps(request: PlanRequest) -> int | None:
    """Optimizer steps of the whole training; None where its tokens are not known."""
    if request.tokens is None:
        return None
    training = request.training
    per_step = training.workload.global_batch * training.workload.sequence_length
    return math.ceil(request.tokens / per_step)


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
