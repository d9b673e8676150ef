"""Descriptions of a neural network that a cost model reads.

``tuning_spaces`` reads these from data files and Hugging Face configurations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from .equations import divisors


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture-of-experts MLP. ``first_dense`` layers have a plain one.

    ``shared`` experts see every token, besides the ``per_token`` chosen of ``count``. If these are
    in ``groups`` of equal size, a token uses experts of at most ``chosen_groups`` groups.
    ``width`` is the width of the tokens that the chosen experts get, with a projection before and
    after them (NVIDIA 2025, "Nemotron 3", LatentMoE); None: the hidden size.
    """

    count: int
    per_token: int
    ffn: int
    shared: int = 0
    first_dense: int = 0
    every: int = 1
    groups: int = 1
    chosen_groups: int = 1
    width: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): ranks and head parts.

    ``Architecture.head`` is then the part of a query without ``rope_head``.
    """

    query_rank: int | None
    key_value_rank: int
    rope_head: int
    value_head: int


class StateForm(str, Enum):
    """Recurrences whose weights and operations are known (``autotuner/mixers``).

    DELTA: gated delta network (Yang et al. 2024, arXiv:2412.06464), as in Qwen3-Next. KIMI_DELTA:
    with a decay for each channel (Kimi Team 2025, arXiv:2510.26692). MAMBA2: Dao and Gu 2024
    (arXiv:2405.21060). MAMBA1: Gu and Dao 2023 (arXiv:2312.00752).
    """

    DELTA = "delta"
    KIMI_DELTA = "kimi_delta"
    MAMBA2 = "mamba2"
    MAMBA1 = "mamba1"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMixer:
    """A layer's replacement for attention that keeps a state instead of keys.

    Queries, keys, values and a gate are projected, convolved over ``convolution`` tokens, and
    read and write a state of ``key_head`` by ``value_head`` for each value head. Of a Mamba keys
    and queries are B and C, ``key_heads`` its groups, ``key_head`` its state's size; Mamba 1 has
    ``value_head`` 1 and computes its steps through ``rank`` values.

    Attributes:
        chunk: tokens that a kernel takes at once.
        beside: True if attention reads the same tokens besides it (Falcon-H1).
    """

    key_heads: int
    key_head: int
    value_heads: int
    value_head: int
    convolution: int = 4
    form: StateForm = StateForm.DELTA
    chunk: int = 64
    rank: int = 0
    beside: bool = False

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_head

    @property
    def values(self) -> int:
        return self.value_heads * self.value_head


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Small attention that chooses the ``top`` keys which a query of the layer may read.

    Source: DeepSeek-AI 2025, "DeepSeek-V3.2" (arXiv:2512.02556), section 2.1.
    """

    heads: int
    head: int
    top: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """``count`` equal layers of a model with several kinds; None: the model's own number.

    Attributes:
        heads: 0 for a layer without attention.
        ffn: 0 for a layer without an MLP.
        experts: True if the MLP is the model's experts.
        streams: copies of all matrices; each token passes a single copy, and all tokens attend
            to each other (Esser et al. 2024, arXiv:2403.03206, MM-DiT).
        other_parameters: weights of a layer that these shapes do not give.
    """

    count: int
    heads: int | None = None
    kv_heads: int | None = None
    head: int | None = None
    ffn: int | None = None
    window: int | None = None
    state: StateMixer | None = None
    experts: bool = False
    streams: int = 1
    other_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Shapes of a transformer.

    Attributes:
        layers: decoder (or only) layers; ``encoder_layers`` come before them, with cross
            attention in each decoder layer.
        head: width of one attention head; ``kv_heads`` below ``heads`` is grouped-query attention.
        gated: the MLP has three matrices (SwiGLU, GEGLU) instead of two.
        positions: learned positions; 0 for rotary or relative ones.
        causal: a decoder; False for BERT.
        window: tokens that attention looks back; None for all.
        state: the layers' replacement for attention; None for none.
        full_every: each this many layers one attends to all tokens, whatever ``window`` and
            ``state`` say of the others; 0: none does.
        kinds: the layers by kind, if they differ in more than ``window`` and ``state``; these
            and ``full_every`` are then of no kind, and counts sum to ``layers``.
        indexer: the choice of keys that attention reads; None: all.
        cross_tokens: tokens of a text that is not encoded here, which each layer attends to in a
            second attention.
        streams: as in ``LayerKind``.
        predictions: predicted tokens beyond the next token, with their own logits; the
            layers that do so are counted in ``layers``.
        tokens: tokens of a sample that the model fixes, such as the patches of an image; None:
            the training's sequence.
        front: a tower whose outputs become tokens of this model, such as a vision encoder; its
            ``tokens`` are one image's.
        vocabulary: 0 for a model that reads no token numbers.
        other_parameters: weights that these shapes do not give, such as token types and poolers.
        other_layer_parameters: the same for each layer, such as norms and biases of its kind.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    ffn: int
    vocabulary: int
    gated: bool = False
    tied_embeddings: bool = True
    positions: int = 0
    biases: bool = True
    causal: bool = True
    encoder_layers: int = 0
    window: int | None = None
    state: StateMixer | None = None
    full_every: int = 0
    kinds: tuple[LayerKind, ...] = ()
    indexer: Indexer | None = None
    cross_tokens: int = 0
    streams: int = 1
    predictions: int = 0
    tokens: int | None = None
    front: Architecture | None = None
    experts: Experts | None = None
    latent: LatentAttention | None = None
    other_parameters: int = 0
    other_layer_parameters: int = 0


class Grade(str, Enum):
    """Source of a ModelSpec; each cost function names the grades that it can predict."""

    ARCHITECTURE = "architecture"
    TRACED = "traced"
    MEASURED = "measured"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmShape:
    """``count`` products (m x k) by (k x n) for one sample of the block's forward pass."""

    m: int
    n: int
    k: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPart:
    """The part of a piece that tensor ranks split; each number is for one sample.

    Attributes:
        parameters: weights that are split.
        activation_bytes: kept between the modules that split and those that join again.
        forward_s: seconds between them; 0 if nothing was timed.
        flops: operations between them.
        columns: modules whose outputs are split: each sums a gradient in the backward pass.
        rows: modules whose inputs are split: each sums its output in the forward pass.
    """

    parameters: int = 0
    activation_bytes: int = 0
    forward_s: float = 0.0
    flops: float = 0.0
    columns: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSpec:
    """``count`` equal pieces of the model; each number is for one piece and one sample.

    ``parameters`` includes ``frozen_parameters``. ``activation_bytes`` is the memory that the
    forward pass keeps for the backward pass in the precision of the run, without recomputation;
    ``input_bytes`` is the memory with full recomputation. ``flops`` is the forward pass,
    ``forward_s`` its seconds, 0 if nothing was timed. ``tied_parameters`` are weights of
    another piece that this one uses. ``expert_parameters`` can be shared out over expert ranks;
    ``experts_per_token`` is how many experts a token goes to, 0 without any. ``split`` is None
    if no tensor plan was found.
    """

    name: str
    count: int = 1
    parameters: int = 0
    frozen_parameters: int = 0
    expert_parameters: int = 0
    experts_per_token: int = 0
    flops: float = 0.0
    activation_bytes: int = 0
    input_bytes: int = 0
    gemm_shapes: tuple[GemmShape, ...] | None = None
    forward_s: float = 0.0
    tied_parameters: int = 0
    split: SplitPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchTiming:
    """Seconds of forward and backward at one micro-batch, and memory held between them.

    ``forward_backward_s`` is the median of a few repeats, ``fastest_s`` the fastest of them.
    """

    micro_batch: int
    forward_backward_s: float
    activation_bytes: int
    fastest_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPeak:
    """Peak of one phase of a step at one micro-batch, from fake tensors, without ZeRO."""

    phase: str
    micro_batch: int
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeLimits:
    """Counts in a live model that a degree of parallelism must divide.

    Attributes:
        key: the degree's name under ``parallelism``.
        counts: name and number of each part that the degree must divide.
        missing: the reason why nothing can be shared out and the remedy, as a sentence's end.
        most: name and number of the part that bounds the degree, if any.
    """

    key: str = "tensor"
    counts: tuple[tuple[str, int], ...] = ()
    missing: str | None = None
    most: tuple[str, int] | None = None

    def obstacle(self, degree: int) -> str | None:
        """The reason why a degree is impossible, with the remedy; None if it is possible."""
        given = f"parallelism.{self.key} is {degree}, but"
        if degree == 1:
            return None
        if self.missing is not None:
            return f"{given} {self.missing}"
        if self.most is not None and degree > self.most[1]:
            what, count = self.most
            return f"{given} the model has {count} {what}; use at most {count}."
        for what, count in self.counts:
            if count % degree:
                return f"{given} must divide the model's {count} {what}; use {self._degrees()}."
        return None

    def _degrees(self) -> str:
        shared = math.gcd(*(count for _, count in self.counts))
        valid = [*map(str, divisors(shared))]
        return " or ".join(filter(None, (", ".join(valid[:-1]), valid[-1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as a sequence of blocks, from any of four sources (``grade``).

    ``parameter_bytes_each`` is the size of a stored weight (4 for fp32). ``timings`` and
    ``traced_peaks`` are empty if nothing was run or traced. ``optimizer_step_s`` is one
    update of all trainable weights on one rank. ``tensor_split``, ``expert_split``,
    ``context_split`` and ``stage_split`` are None if unknown; ``heads``, ``kv_heads``
    and ``head_size`` are None if the model's configuration has none.
    """

    grade: Grade
    blocks: tuple[BlockSpec, ...]
    parameter_bytes_each: float = 4.0
    timings: tuple[MicroBatchTiming, ...] = ()
    traced_peaks: tuple[TracedPeak, ...] = ()
    optimizer_step_s: float | None = None
    hidden_size: int | None = None
    layers: int | None = None
    sequence_length: int | None = None
    vocabulary_size: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    tensor_split: DegreeLimits | None = None
    expert_split: DegreeLimits | None = None
    context_split: DegreeLimits | None = None
    stage_split: DegreeLimits | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def degree_limits(self) -> tuple[DegreeLimits, ...]:
        """Limits of all degrees that are known."""
        known = (self.tensor_split, self.expert_split, self.context_split, self.stage_split)
        return tuple(limits for limits in known if limits is not None)

    @property
    def parameters(self) -> int:
        """All weights, frozen ones included."""
        return sum(block.count * block.parameters for block in self.blocks)

    @property
    def trainable_parameters(self) -> int:
        """Weights that get gradients and optimizer state."""
        return sum(b.count * (b.parameters - b.frozen_parameters) for b in self.blocks)

    @property
    def activation_bytes_per_sample(self) -> int:
        """Bytes kept for the backward pass for each sample of a micro-batch."""
        return sum(block.count * block.activation_bytes for block in self.blocks)

    @property
    def forward_flops_per_sample(self) -> float:
        """Floating-point operations of the forward pass of one sample."""
        return sum(block.count * block.flops for block in self.blocks)
