"""What a base configuration says, as NVIDIA's tool works it out. Not: how a framework spells it.

Source of rules: NeMo-Framework-Launcher, auto_configurator (24.12), ``base_config.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoconf_launch.core import ConfigError

from .chosen_model import ChosenModel
from .families import Family

_WARMUP = 0.0015
_CONSTANT = 0.166
WARMUP_RATIO = 0.01
"""Warm-up of T5's schedule over all steps."""
_T5_STD = 0.015
_STD = 0.64
_SEQUENCE_PARALLEL_ABOVE_B = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The training that a base configuration is for.

    Attributes:
        days: how long it may run, for its time limit.
        max_steps: as given; None has those that the tokens need.
        wandb_project: None where runs are not logged there.
        index_folder: of data, which Base Command Platform keeps apart; None elsewhere.
    """

    days: float
    nodes: int
    gpus_per_node: int
    tokens_b: float
    wandb_project: str | None = None
    index_folder: str | None = None
    max_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseConfig:
    """Everything that is worked out; T5's schedule has a warmup ratio instead of steps.

    ``time_limit`` is Slurm's, ``max_time`` Lightning's, one hour less and half past.
    """

    model: ChosenModel
    plan: RunPlan
    name: str
    time_limit: str
    max_time: str
    max_steps: int
    init_std: float
    min_learning_rate: float
    warmup_steps: int
    constant_steps: int
    sequence_parallel: bool


def base_config(model: ChosenModel, plan: RunPlan) -> BaseConfig:
    """Names, times, steps and schedule of a model.

    Raises:
        ConfigError: there are fewer tokens than one step reads.
    """
    asked, shape = model.asked, model.shape
    per_step = asked.sequence * model.batch.global_batch
    steps = plan.max_steps or int(plan.tokens_b * 1e9 / per_step)
    if steps < 1:
        raise ConfigError(
            f"{plan.tokens_b * 1e9:.0f} tokens are less than one step reads: "
            f"{model.batch.global_batch} samples of {asked.sequence} are {per_step}."
        )
    is_t5 = asked.family.is_encoder_decoder
    return BaseConfig(
        model=model,
        plan=plan,
        name=run_name(asked.family.name, asked.size_b),
        time_limit=time_limit(plan.days),
        max_time=max_time(plan.days),
        max_steps=steps,
        init_std=_T5_STD if is_t5 else round(_STD / math.sqrt(shape.hidden), 6),
        min_learning_rate=round(0.1 * shape.learning_rate, 8),
        warmup_steps=int(_WARMUP * steps),
        constant_steps=int(_CONSTANT * steps),
        sequence_parallel=asked.size_b > _SEQUENCE_PARALLEL_ABOVE_B,
    )


def run_name(family: str, size_b: float) -> str:
    """``gpt3_5b``, ``gpt3_4.03b``."""
    return f"{family}_{size_b:.10g}b"


def time_limit(days: float) -> str:
    """Slurm's ``D-HH:00:00``, at least an hour."""
    whole, hours = _days_and_hours(days)
    return f"{whole}-{hours:02d}:00:00"


def max_time(days: float) -> str:
    """Lightning's ``D:HH:30:00``: the time limit less half an hour, so that training ends first.

    A training of less than two hours has half of one: NVIDIA's tool would write -1 days.
    """
    whole, hours = _days_and_hours(days)
    whole, hours = (whole, hours - 1) if hours else (whole - 1, 23)
    return f"{whole}:{hours:02d}:30:00"


def _days_and_hours(days: float) -> tuple[int, int]:
    whole = int(days)
    hours = int(24 * (days - whole))
    return (0, 1) if (whole, hours) == (0, 0) else (whole, hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """Shapes and kind; ``layers`` of an encoder-decoder are those of one stack.

    Attributes:
        decoder_sequence: of an encoder-decoder; None for other models.
        vocabulary: None where the tokenizer says it.
        experts: 0 for none.
    """

    layers: int
    hidden: int
    heads: int
    groups: int
    head: int
    ffn: int
    sequence: int
    decoder_sequence: int | None
    vocabulary: int | None
    gated: bool
    biases: bool
    tied: bool
    learned_positions: bool
    experts: int
    experts_per_token: int
    init_std: float
    hidden_dropout: float
    attention_dropout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSchedule:
    """Steps and rates; at the end the least rate is kept for ``constant_steps``.

    ``is_cosine`` is False for T5's straight fall.
    """

    steps: int
    warmup_steps: int
    constant_steps: int
    learning_rate: float
    least_rate: float
    is_cosine: bool
    weight_decay: float
    betas: tuple[float, float]
    epsilon: float
    clip: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSplit:
    """Batch and degrees of parallelism on the machines of the file."""

    nodes: int
    gpus_per_node: int
    global_batch: int
    micro_batch: int
    tensor: int
    pipeline: int
    virtual: int | None
    context: int
    expert: int
    sequence_parallel: bool

    @property
    def data(self) -> int:
        """Replicas; at least 1, also where the file's degrees need more GPUs than it has."""
        ranks = self.tensor * self.pipeline * self.context
        return max(1, self.nodes * self.gpus_per_node // ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretraining:
    """Everything that an export says."""

    name: str
    family: Family
    model: TrainedModel
    schedule: RateSchedule
    split: BatchSplit
