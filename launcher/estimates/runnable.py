"""Whether our runtime runs a layout of a training, and why not. Not: the rules on a layout."""

from __future__ import annotations

from autoconf_launch.autotuner.cost import LayoutColumns, LayoutRule
from autoconf_launch.autotuner.planner import PLAN_RULES, RUNTIME_RULES, plan_only_by
from autoconf_launch.core import (
    BUILTIN_PRECISIONS,
    OPTIMIZERS,
    Architecture,
    ConfigError,
    Layout,
    Workload,
)

from .fit_flags import PlanRequest

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
