"""Trainers, the layouts that they and our runtime have, and the nearest trainings that run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoconf_launch.autotuner.cost import (
    AUTO_TRAINER,
    Abilities,
    LayoutColumns,
    LayoutRule,
    Machine,
    TrainerChoice,
)
from autoconf_launch.autotuner.planner import (
    PLAN_RULES,
    RUNTIME_RULES,
    NearestChange,
    Plan,
    Question,
    Training,
    choose_trainer,
    lighter_trainings,
    nearest_changes,
    plan_only_by,
    schedule_rules,
    shorter_trainings,
    trainer_rules,
)
from autoconf_launch.autotuner.sizing import runs_flash
from autoconf_launch.core import (
    BUILTIN_PRECISIONS,
    OPTIMIZERS,
    Architecture,
    ClusterSpec,
    ConfigError,
    Framework,
    Layout,
    Loss,
    Optimizer,
    Precision,
    Software,
    States,
    Workload,
)
from autoconf_launch.tuning_spaces import CHECKED, TRAINERS, trainer

from .clusters import larger_clusters, machine_of
from .requests import PlanRequest, TrainingRequest

BY_SCRIPT = "by the script"
"""The reason why a trainer is a script's."""
_GENERAL = "huggingface"
"""The trainer for models that the default trainer lacks, if Hugging Face's has them."""
_WRITTEN = 128
"""``seq_length_dec`` of NeMo 1.0's T5 and mT5, of which all its sizes read 512."""
USUAL_TRAINER = TrainerChoice(name="megatron", why="checked against NVIDIA's published trainings")
"""The trainer of :func:`usual_training`, against which the published speeds are held."""
_KINDS = ("tp", "pp", "vpp", "cp", "ep")
UNKNOWN_TRAINING = "runtime_training"  # holds for all layouts alike
UNKNOWN_MODEL = "runtime_model"  # the model's splittable parts are unknown
_NEVER_CHECKED = tuple(rule for rule in RUNTIME_RULES if rule.knob == "offload_C")


def with_trainer(
    trainings: Sequence[TrainingRequest],
    name: str = AUTO_TRAINER,
    *,
    flash_attention: bool | None = None,
    runnable: bool = False,
) -> tuple[TrainingRequest, ...]:
    """A training on its clusters, with the habits of a single trainer.

    Args:
        trainings: the same workload on each cluster in question.
        name: the trainer, or ``auto`` to choose by the question.
        flash_attention: None: the trainer's habit.
        runnable: only layouts of our own runtime are ranked.

    Raises:
        ConfigError: the trainer is unknown, or lacks a feature of the training.
    """
    workload = trainings[0].workload
    if name != AUTO_TRAINER:
        choice = TrainerChoice(name=name, why="as given")
    elif runnable:
        choice = TrainerChoice(name="native", why="default for --runnable")
    else:
        gpus = [device.name for one in trainings for device in one.cluster.devices]
        choice = usual_trainer(workload, gpus)
    workload = trainer(choice.name).apply_to(workload)
    if (lacked := TRAINERS[choice.name].abilities.first_lack(workload)) and name != AUTO_TRAINER:
        names = ", ".join(_trainers_with(workload))
        others = f"trainers with it: {names}" if names else "no trainer of ours has it"
        raise ConfigError(f"--trainer {name} has no {lacked}; {others}.")
    if flash_attention is not None:
        software = replace(workload.software, flash_attention=flash_attention)
        workload = replace(workload, software=software)
    return tuple(replace(one, workload=workload, trainer=choice) for one in trainings)


def with_choice(training: TrainingRequest, choice: TrainerChoice) -> TrainingRequest:
    """The training with the habits of a trainer; requested attention stays."""
    before = training.workload.software.flash_attention
    is_asked = before is not trainer(training.trainer.name).software.flash_attention
    workload = trainer(choice.name).apply_to(training.workload)
    if is_asked:
        workload = replace(workload, software=replace(workload.software, flash_attention=before))
    return replace(training, workload=workload, trainer=choice)


def usual_trainer(workload: Workload, gpus: Sequence[str]) -> TrainerChoice:
    """The default trainer of a training, or another one if that cannot train the model."""
    choice = choose_trainer(workload, gpus, CHECKED)
    if (lacked := TRAINERS[choice.name].abilities.first_lack(workload)) is None:
        return choice
    # a training without a trainer in the table is priced as the default's
    name = min(_trainers_with(workload), key=lambda name: name != _GENERAL, default=None)
    return choice if name is None else TrainerChoice(name=name, why=f"default for {lacked}")


def _trainers_with(workload: Workload) -> list[str]:
    return [name for name, one in TRAINERS.items() if one.abilities.first_lack(workload) is None]


def rules_of(training: TrainingRequest) -> tuple[LayoutRule, ...]:
    """Layouts that the trainer and its pipeline schedule have."""
    work = training.workload
    of_trainer = trainer_rules(training.abilities, in_backward=work.updates_in_backward)
    return (*of_trainer, *schedule_rules(work.software.schedule))


def usual_training(
    architecture: Architecture,
    sequence: int,
    nodes: Machine,
    precision: Precision = Precision.BF16,
    *,
    written: int | None = None,
) -> Training:
    """Adam and the habits of Megatron-LM, on which NeMo is built.

    Args:
        architecture: the model.
        sequence: tokens of a sample.
        nodes: equal machines.
        precision: of the matrix products.
        written: tokens of a decoder behind an encoder; None: NeMo's. Others have none.
    """
    if not architecture.encoder_layers:
        written = None
    elif written is None:
        written = min(sequence, _WRITTEN)
    asked = Workload(
        model=architecture,
        sequence_length=sequence,
        decoder_sequence_length=written,
        precision=precision,
    )
    usual = TRAINERS[USUAL_TRAINER.name].apply_to(asked)
    software = replace(usual.software, flash_attention=runs_flash(architecture))
    return Training(workload=replace(usual, software=software), machine=nodes)


def default_zero(training: TrainingRequest, layout: Layout) -> int:
    """The ZeRO stage of a layout that leaves it open: 1, or the highest that its trainer has."""
    has = training.abilities
    stages = set(dict(has.zero))
    if layout.pipeline_parallel > 1:
        stages &= has.zero_in_pipelines
    if layout.tensor_parallel * layout.context_parallel > 1:
        stages &= has.zero_beside_tensor
    if layout.data_parallel * layout.context_parallel == 1 and 1 not in stages:
        return 0
    return 1 if 1 in stages or not stages else max(stages)


def has_sequence(training: TrainingRequest) -> bool:
    """True if the trainer splits the sequence with tensor parallelism, or leaves it to others.

    A default trainer without tensor parallelism gives way to a trainer with it.
    """
    parallel = training.abilities.parallel
    return "sp" in parallel or ("tp" not in parallel and training.trainer.why != "as given")


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


def ranking_rules(
    request: PlanRequest,
) -> tuple[tuple[LayoutRule, ...], tuple[LayoutRule, ...]]:
    """Rules on all layouts of a question, and rules whose breakers are not to use first.

    Raises:
        ConfigError: only layouts that run here are requested, but no layout of the training does.
    """
    rules = (*PLAN_RULES, *rules_of(request.training))
    if request.runnable:
        if not trains_here(request.training.workload):
            raise ConfigError(
                "--runnable ranks what our own runtime trains, which is whole models in "
                f"{', '.join(kind.value for kind in BUILTIN_PRECISIONS)} with one of "
                f"{', '.join(sorted(OPTIMIZERS))}; omit it, or change the training."
            )
        rules = (*rules, *RUNTIME_RULES)
    return rules, apart_rules(request)


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
        for changed, ours in _with_workload(question, training, _as_ours(workload)):
            larger = _larger(ours, training.cluster)
            for one in nearest_changes((ours,), larger)[:1]:
                yield changed, one


def _as_ours(workload: Workload) -> Workload:
    """The training with formats, an optimizer, a loss and a schedule of our runtime."""
    if not _has_precision(workload):
        workload = replace(workload, precision=Precision.BF16)
    if not _has_optimizer(workload):
        workload = replace(workload, optimizer=Optimizer.from_name("adamw"))
    software = replace(workload.software, schedule=Software().schedule)
    formats: dict[str, Any] = dict.fromkeys(("states", "gradients", "loss"))
    return replace(workload, software=software, updates_in_backward=False, **formats)


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


def trains_here(workload: Workload) -> bool:
    """True if our runtime has the formats, optimizer, loss and schedule, and all is trained."""
    has_states = workload.states in (None, States.FP32) and workload.gradients is None
    has_loss = workload.loss in (None, Loss.WHOLE) and not workload.updates_in_backward
    has_schedule = workload.software.schedule.name in TRAINERS["native"].abilities.schedules
    is_plain = has_states and has_loss and has_schedule and workload.trains_all
    return is_plain and _has_precision(workload) and _has_optimizer(workload)


def _has_precision(workload: Workload) -> bool:
    return workload.precision.configured in BUILTIN_PRECISIONS


def _has_optimizer(workload: Workload) -> bool:
    return workload.optimizer.name in {name.lower() for name in OPTIMIZERS}


def has_uneven(training: TrainingRequest) -> bool:
    """True if the trainer, or ours in place of a default, has micro-batches of several sizes."""
    is_ours = trains_here(training.workload) and training.trainer.why != "as given"
    return is_ours or "uneven" in training.abilities.parallel


def trainer_of_layout(
    training: TrainingRequest, lay_out: Callable[[TrainingRequest], Layout], layers: int
) -> TrainingRequest:
    """The training with a trainer that has its layout: its own, or if none was given another.

    Args:
        training: with the trainer that was given or chosen.
        lay_out: the layout with a trainer's defaults.
        layers: of each stage that are recomputed in full; -1 for all.

    Raises:
        ConfigError: the trainer that was given lacks the layout, or all do.
    """

    def first_lack(one: TrainingRequest) -> LayoutRule | None:
        columns = LayoutColumns.from_layouts([lay_out(one)], [layers])
        model, sequence = one.workload.architecture, one.workload.sequence_length
        rules = trainer_rules(one.abilities, in_backward=one.workload.updates_in_backward)
        return next((x for x in rules if not x.keep(columns, model, sequence).all()), None)

    if lay_out(training).micro_batch_split and not has_uneven(training):
        raise ConfigError(
            f"Trainer {training.trainer.name} has no --micro-batch-split; omit it, or give "
            "--trainer native."
        )
    if training.trainer.why == BY_SCRIPT or (rule := first_lack(training)) is None:
        return training  # a script runs as it is
    name, is_default = training.trainer.name, training.trainer.why != "as given"
    why = f"default for {rule.flag}"
    trainers = (TrainerChoice(name=x, why=why) for x in _trainers_with(training.workload))
    able = [one for one in trainers if first_lack(replace(training, trainer=one)) is None]
    if is_default and able:
        return with_choice(training, able[0])
    has = _what_it_has(training.abilities, rule, lay_out(training))
    *most, last = ["", *(one.name for one in able[:3])]
    names = " or ".join(filter(None, (", ".join(most[1:]), last)))
    instead = f"change that, or give --trainer {names}" if able else "no trainer of ours has it"
    raise ConfigError(f"Trainer {name} {has}; {instead}.")


def _what_it_has(has: Abilities, rule: LayoutRule, layout: Layout) -> str:
    stages = {
        "trainer_zero": frozenset(dict(has.zero)),
        "trainer_zero_in_pipelines": has.zero_in_pipelines,
        "trainer_zero_beside_tensor": has.zero_beside_tensor,
    }.get(rule.name)
    if stages is not None:
        among = ", ".join(f"{stage} ({words})" for stage, words in has.zero if stage in stages)
        place = {"trainer_zero_in_pipelines": " with --pp"}.get(rule.name, "")
        place = " with --tp or --cp" if rule.name == "trainer_zero_beside_tensor" else place
        return f"has no --zero {layout.zero_stage}{place}; valid: {among}"
    if rule.name == "trainer_activations":
        return "offloads activations only without --pp and --recompute"
    if rule.name == "trainer_in_backward":
        return f"has no --{rule.flag} with several micro-batches a step; raise --micro-batch"
    if rule.name == "trainer_layout":
        pieces = f"--pp {layout.pipeline_parallel} --vpp {layout.virtual_pipeline}"
        return f"has only virtual stages of equal layers, which {pieces} are not"
    if rule.name in ("trainer_offload", "trainer_recompute"):
        kinds = has.recompute - {"layers"} if rule.flag == "recompute" else has.offload
        words = sorted(str(getattr(one, "value", one)) for one in kinds)
        given = getattr(layout, rule.flag).value
        return f"has no --{rule.flag} {given}; valid: {', '.join(words)}"
    beside = (f"--{one}, " for one in _KINDS if one in has.parallel)
    stages_had = ", ".join(str(stage) for stage, _ in has.zero)
    return f"has no --{rule.flag}; it has {''.join(beside)}--zero {stages_had}"
