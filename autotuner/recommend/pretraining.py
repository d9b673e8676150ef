"""What a base configuration trains. Not: its file (base_reader), nor its export."""

from __future__ import annotations

from dataclasses import dataclass

from .families import Family


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
class Schedule:
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
class Split:
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
    schedule: Schedule
    split: Split
