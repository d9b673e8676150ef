"""Trainers: the code that trains, its habits, and the layouts that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.autotuner.cost import (
    AUTO_TRAINER,
    LayoutRule,
    Machine,
    TrainerChoice,
)
from autoconf_launch.autotuner.planner import Training, choose_trainer, trainer_rules
from autoconf_launch.autotuner.sizing import runs_flash
from autoconf_launch.core import (
    Architecture,
    ConfigError,
    Layout,
    Precision,
    Workload,
)
from autoconf_launch.tuning_spaces import CHECKED, TRAINERS, trainer

from .requests import TrainingRequest

BY_SCRIPT = "by the script"
"""The reason why a trainer is a script's."""
_GENERAL = "huggingface"
"""The trainer for models that the default trainer lacks, if Hugging Face's has them."""
_WRITTEN = 128
"""``seq_length_dec`` of NeMo 1.0's T5 and mT5, of which all its sizes read 512."""
USUAL_TRAINER = TrainerChoice(name="megatron", why="checked against NVIDIA's published trainings")
"""The trainer of :func:`usual_training`, against which the published speeds are held."""


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
        raise ConfigError(f"--trainer {name} has no {lacked}; {_trainers_with(workload)}.")
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
    others = (name for name, one in TRAINERS.items() if one.abilities.first_lack(workload) is None)
    # a training without a trainer in the table is priced as the default's
    name = next(iter(sorted(others, key=lambda name: name != _GENERAL)), None)
    return choice if name is None else TrainerChoice(name=name, why=f"default for {lacked}")


def _trainers_with(workload: Workload) -> str:
    names = [name for name, one in TRAINERS.items() if one.abilities.first_lack(workload) is None]
    return f"trainers with it: {', '.join(names)}" if names else "no trainer of ours has it"


def rules_of(training: TrainingRequest) -> tuple[LayoutRule, ...]:
    """Layouts that the trainer has."""
    return trainer_rules(TRAINERS[training.trainer.name].abilities)


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
    has = TRAINERS[training.trainer.name].abilities
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
    parallel = TRAINERS[training.trainer.name].abilities.parallel
    return "sp" in parallel or ("tp" not in parallel and training.trainer.why != "as given")
