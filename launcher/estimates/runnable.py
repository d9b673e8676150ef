"""Runners of layouts and the rules on them: trainers, our runtime, limits of time and money.

And the nearest trainings that run, if none does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.cost import LayoutColumns, LayoutRule
from autoconf_launch.autotuner.planner import (
    PLAN_RULES,
    RUNTIME_RULES,
    NearestChange,
    Plan,
    Question,
    lighter_trainings,
    nearest_changes,
    plan_only_by,
    shorter_trainings,
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
from autoconf_launch.tuning_spaces import TRAINERS

from .clusters import larger_clusters, machine_of
from .requests import PlanRequest, TrainingRequest
from .trainers import BY_SCRIPT, rules_of, trains_here, usual_trainer, with_choice

UNKNOWN_TRAINING = "runtime_training"
"""The rule on what is trained with, which holds for all layouts alike."""
UNKNOWN_MODEL = "runtime_model"
"""The rule on models of which nobody knows what could be split."""


@dataclass(frozen=True, slots=True)
class RowState:
    """The runner of a layout, the same in every view.

    Attributes:
        runs_here: ``yes``, ``with TRAINER``, ``with the script``, or ``plan-only``: no trainer, as
            far as was checked.
        rule: name of the rule by which our runtime does not run it; None: it does.
    """

    runs_here: str
    rule: str | None = None

    @property
    def is_plan_only(self) -> bool:
        return self.runs_here == "plan-only"


def row_states(
    training: TrainingRequest, broken: Sequence[str | None], apart: Sequence[LayoutRule]
) -> list[RowState]:
    """States of layouts that the training's trainer has.

    Args:
        training: the training.
        broken: for each layout the name of the first rule of our runtime that it breaks.
        apart: rules whose breakers are not to use first.
    """
    names, trainer = {rule.name for rule in apart}, training.trainer
    lacked = None if trains_here(training.workload) else UNKNOWN_TRAINING
    others = "plan-only" if trainer.name == "native" else f"with {trainer.name}"
    others = "with the script" if trainer.why == BY_SCRIPT else others

    def state(rule: str | None) -> RowState:
        if rule in names:
            return RowState("plan-only", rule)
        rule = lacked or rule
        return RowState("yes" if rule is None else others, rule)

    by_rule = {rule: state(rule) for rule in {*broken}}
    return [by_rule[rule] for rule in broken]


def layout_state(training: TrainingRequest, layout: Layout, layers: int) -> RowState:
    """The state of a layout of which ``layers`` of each stage are recomputed in full."""
    broken = broken_rule_here(layout, layers, training.workload)
    return row_states(training, [broken], apart_of(training))[0]


def plan_only_rule(layout: Layout, recompute_layers: int, workload: Workload) -> str | None:
    """Name of the rule by which our runtime does not run a layout; None: it runs."""
    if not trains_here(workload):
        return UNKNOWN_TRAINING
    return broken_rule_here(layout, recompute_layers, workload)


def broken_rule_here(layout: Layout, recompute_layers: int, workload: Workload) -> str | None:
    """Name of the first rule of our runtime that a layout breaks."""
    if not isinstance(workload.model, Architecture):
        return None if layout.mesh == (1, 1, 1, 1) else UNKNOWN_MODEL
    columns = LayoutColumns.from_layouts([layout], [recompute_layers])
    return plan_only_by(columns, workload.model, workload.sequence_length)[0]


def layout_rules(request: PlanRequest) -> tuple[LayoutRule, ...]:
    """Rules that layouts must obey.

    Raises:
        ConfigError: only layouts that run here are requested, but no layout of the training does.
    """
    trainers = rules_of(request.training)
    if not request.runnable:
        return (*PLAN_RULES, *trainers)
    if not trains_here(request.training.workload):
        raise ConfigError(
            "--runnable ranks what our own runtime trains, which is whole models in "
            f"{', '.join(kind.value for kind in BUILTIN_PRECISIONS)} with one of "
            f"{', '.join(sorted(OPTIMIZERS))}; omit it, or change the training."
        )
    return (*PLAN_RULES, *trainers, *RUNTIME_RULES)


def ranking_rules(
    request: PlanRequest,
) -> tuple[tuple[LayoutRule, ...], tuple[LayoutRule, ...]]:
    """Rules on all layouts of a question, and rules whose breakers are not to use first."""
    return layout_rules(request), apart_rules(request)


_NEVER_CHECKED = tuple(rule for rule in RUNTIME_RULES if rule.name == "runtime_offload")
"""Layouts of a kind that no published run has."""


def apart_rules(request: PlanRequest) -> tuple[LayoutRule, ...]:
    """Rules whose breakers are not to use first: they do not run here, or were never checked.

    A training that another trainer runs, by a flag or as ours does not, is not held to our rules;
    a preset ranks as FASOP does, whose layouts Megatron-LM trains.
    """
    return () if request.degrees is not None else apart_of(request.training)


def apart_of(training: TrainingRequest) -> tuple[LayoutRule, ...]:
    """The same rules of a training, without a preset."""
    is_ours = trains_here(training.workload) and not _runs_elsewhere(training)
    return RUNTIME_RULES if is_ours else _NEVER_CHECKED


def _runs_elsewhere(training: TrainingRequest) -> bool:
    framework = training.workload.software.framework
    is_theirs = framework in (Framework.MEGATRON, Framework.DEEPSPEED)
    return "--trainer" in training.given and is_theirs


def changes_to_use(
    question: Question, found: Plan, training: TrainingRequest
) -> Iterator[tuple[TrainingRequest, NearestChange]]:
    """The nearest trainings with a layout that fits, and runs if the one asked for does not.

    Adapters stay adapters, and frozen parts frozen.
    """
    workload = question.training.workload
    if found.smallest is not None or found.are_all_apart:
        if workload.trains_adapters:
            yield from _changes_of_adapters(question, training)
        else:
            yield from _changes_that_fit(question, training, fits=found.are_all_apart)
    is_whole = workload.trains_all
    if is_whole and not trains_here(workload) and not _runs_elsewhere(training):
        plain = replace(
            workload,
            precision=_known_precision(workload.precision),
            optimizer=_known_optimizer(workload.optimizer),
        )
        for changed, ours in _with_workload(question, training, plain):
            larger = _larger(ours, training.cluster)
            for one in nearest_changes((ours,), larger)[:1]:
                yield changed, one


def _changes_that_fit(
    question: Question, training: TrainingRequest, *, fits: bool
) -> Iterator[tuple[TrainingRequest, NearestChange]]:
    """Lighter trainings on these machines; if none fits, on fewer than the same one needs."""
    larger, too_large, found = [*_larger_change(question, training)], [], False
    if not fits and not larger:
        larger = [*_larger_change(question, training, _NEVER_CHECKED)]
    for lighter in lighter_trainings(question.training.workload):
        for changed, one in _with_workload(question, training, lighter):
            changes = nearest_changes((one,), ())
            found = found or bool(changes)
            too_large += [(changed, one)] * (not changes)
            yield from ((changed, change) for change in changes)
    most = min((change.question.world for _, change in larger), default=math.inf)
    for changed, one in () if found else too_large:
        is_adapters = changed.workload.trains_adapters
        combined = (_changes_of_adapters if is_adapters else _larger_change)(one, changed)
        for pair in combined:
            if pair[1].question.world < most:
                found = True
                yield pair
    yield from larger if larger or found else _larger_change(question, training, _NEVER_CHECKED)


def _changes_of_adapters(
    question: Question, training: TrainingRequest
) -> Iterator[tuple[TrainingRequest, NearestChange]]:
    """Weights in 4 bits; else, with them and without, shorter samples and more machines."""
    bases = [(training, question)]
    for lighter in lighter_trainings(question.training.workload):
        for base in _with_workload(question, training, lighter):
            if changes := nearest_changes((base[1],), ()):
                yield base[0], changes[0]
            else:
                bases.append(base)
    for own, base_question in bases:
        for shorter in shorter_trainings(own.workload):
            changed, one = next(_with_workload(base_question, own, shorter))
            if changes := nearest_changes((one,), ()):
                yield changed, changes[0]
                break
    for own, base_question in bases:
        yield from _larger_change(base_question, own)


def _larger_change(
    question: Question, training: TrainingRequest, refused: Sequence[LayoutRule] | None = None
) -> Iterator[tuple[TrainingRequest, NearestChange]]:
    """More machines, up to the first with a layout to use."""
    for change in nearest_changes((), _larger(question, training.cluster), refused):
        yield training, change


def _with_workload(
    question: Question, training: TrainingRequest, workload: Workload
) -> Iterator[tuple[TrainingRequest, Question]]:
    is_ours = any(rule in RUNTIME_RULES for rule in question.rules)
    choice = training.trainer
    if TRAINERS[choice.name].abilities.first_lack(workload) is not None:
        choice = usual_trainer(workload, [device.name for device in training.cluster.devices])
    lacked = TRAINERS[choice.name].abilities.first_lack(workload)
    if lacked is not None or (is_ours and not trains_here(workload)):
        return
    changed = with_choice(replace(training, workload=workload), choice)
    others = (rule for rule in question.rules if not rule.name.startswith("trainer_"))
    yield (
        changed,
        replace(
            question,
            training=replace(question.training, workload=changed.workload),
            rules=(*others, *rules_of(changed)),
            apart_rules=apart_of(changed),
        ),
    )


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
