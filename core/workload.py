"""A training to be laid out: its model, sizes and software. Not: layouts, machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from .layout import Precision
from .model_spec import Architecture, ModelSpec
from .rank import OperationCost


class Framework(str, Enum):
    """The framework by whose rules weights, gradients and optimizer state are kept."""

    MEGATRON = "megatron"
    """Megatron-LM and NeMo: 16-bit weights; ZeRO 1 is the distributed optimizer, 2 and 3 are
    Megatron-FSDP."""
    DEEPSPEED = "deepspeed"
    """DeepSpeed and Megatron-DeepSpeed: 16-bit weights, flat buffers, buckets."""
    FSDP = "fsdp"
    """torch's DDP and FSDP2 (Hugging Face, torchtitan, ours): fp32 weights, used in 16 bits."""


class UpdatedWeights(str, Enum):
    """The way of weights from the ranks that updated them to the other replicas (ZeRO 1)."""

    OVERLAPPED = "overlapped"
    """Gathered alongside the next forward pass, in place of the second half of a reduction."""
    GATHERED = "gathered"
    """Gathered after the update, with nothing to hide behind."""
    BROADCAST = "broadcast"
    """Each rank broadcasts the whole tensors that it owns, after gradients were reduced whole."""
    IN_NODE = "in_node"
    """The same among the ranks of a node, each of which keeps all states."""


class Dispatcher(str, Enum):
    """The library that sends tokens to their experts."""

    TORCH = "torch"
    """torch's all-to-all: every copy of a token leaves by itself."""
    DEEPEP = "deepep"
    """DeepEP: a token leaves for another domain once (github.com/deepseek-ai/DeepEP)."""
    HYBRIDEP = "hybridep"
    """DeepEP's branch for NVLink domains larger than a node, as NVIDIA's recipes of GB200 use."""


class States(str, Enum):
    """Formats of weights, gradients and optimizer values between steps."""

    FP32 = "fp32"
    """All in fp32; weights are cast for products."""
    BF16_MASTER = "bf16-master"
    """16-bit weights with an fp32 copy that the optimizer updates, and fp32 moments."""
    BF16_MOMENTS = "bf16-moments"
    """The same with 16-bit moments, as Megatron's precision-aware optimizer keeps them
    (github.com/NVIDIA/Megatron-LM megatron/core/optimizer/optimizer_config.py, exp_avg_dtype)."""
    BF16 = "bf16"
    """All in 16 bits, without an fp32 copy."""


class GradientSum(str, Enum):
    """Format in which gradients are summed over micro-batches."""

    BF16 = "bf16"
    FP32 = "fp32"

    @property
    def bytes_each(self) -> float:
        """Size of a gradient."""
        return 4.0 if self is GradientSum.FP32 else 2.0


class Loss(str, Enum):
    """Way from the last hidden states to the loss, by the logits that exist at once."""

    WHOLE = "whole"
    """All logits of a micro-batch; tensor-parallel ranks share them out by vocabulary."""
    CHUNKED = "chunked"
    """All logits in 16 bits; the loss of one piece of them at a time, in fp32
    (github.com/pytorch/torchtune torchtune/modules/loss/ce_chunked_output_loss.py)."""
    FUSED = "fused"
    """The head's product and the loss of one piece of the tokens at a time: Liger, Unsloth,
    torch's ``linear_cross_entropy``."""


class FrozenPart(str, Enum):
    """Weights that may be frozen."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    MLP = "mlp"
    HEAD = "head"


class WeightFormat(str, Enum):
    """Storage of the layers' frozen matrices, if not the precision of the run.

    Embeddings, norms and the head stay as they are.
    """

    INT8 = "int8"
    """A scale for each row, not counted here (Dettmers et al. 2022, "LLM.int8()", section 3)."""
    NF4 = "nf4"
    """4 bits, a scale for 64 weights in 8 bits, and for 256 scales one in fp32: 4.127 bits
    (Dettmers et al. 2023, "QLoRA", section 3, double quantization)."""

    @property
    def bytes_each(self) -> float:
        """Size of a stored weight, its scales included."""
        return 1.0 if self is WeightFormat.INT8 else (4 + 8 / 64 + 32 / (64 * 256)) / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSchedule:
    """The order of the micro-batches in a pipeline of p stages; by default 1F1B.

    A schedule that splits the backward pass into the gradients of inputs and of weights fills the
    bubble with the latter. Forward and both halves of the backward pass are taken as equally long,
    each a third of a stage's micro-batch, which holds for products but not for attention (Qi et
    al. 2023, arXiv:2401.10241, section 2).

    Attributes:
        bubble: length of each part of the bubble, over the seconds of a micro-batch on a stage.
        bubble_stages, bubble_less: the bubble has ``bubble_stages * p - bubble_less`` parts.
        held_stages, held_more: each stage holds the activations of ``held_stages * p + held_more``
            micro-batches.
        falls: each stage holds one less than the stage before it.
        interleaves: virtual stages shorten the bubble.
        chunks: stages of each rank, which lie on the ranks as a V.
        copies: copies of each weight and gradient, besides data parallelism.
        least: fewest micro-batches of a step, over p.
        source: publication and place.
    """

    name: str = "1f1b"
    bubble: float = 1.0
    bubble_stages: float = 1.0
    bubble_less: float = 1.0
    held_stages: float = 1.0
    held_more: float = 0.0
    falls: bool = True
    interleaves: bool = True
    chunks: int = 1
    copies: int = 1
    least: float = 0.0
    source: str = "Narayanan et al. 2021 (arXiv:2104.04473), section 2.2"

    @property
    def is_folded(self) -> bool:
        """True if a rank has the first stage and the last one."""
        return self.chunks > 1 or self.copies > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Properties of a training code that do not depend on the model.

    Attributes:
        flash_attention: attention in one kernel; the matrix of scores is never stored.
        dropout: its masks are kept.
        logit_bytes: most bytes of a logit at once, if its loss is whole; None: the framework's.
        compiled: a compiler plans the buffers and fuses small operations (``torch.compile``).
        transformer_engine: kernels of NVIDIA's library, which keeps weights of FP8 in 8 bits and
            transposed, without a 16-bit copy.
        async_tensor: tensor-parallel communication is cut up to run during its products.
        graphed: in formats with scales of small blocks a whole step is one recorded graph, in
            which no layer waits for the host to count its experts' tokens.
        plain_torch: products under ``torch.autocast`` over fp32 weights, kernels of torch only, a
            vocabulary without padding.
        gradient_bytes: of a gradient that waits for the update; None: as the framework does.
        reduced_bytes: of a gradient on its way between replicas.
        added_bytes: traffic of adding one gradient of a micro-batch to earlier ones outside of the
            product that makes it.
        dispatcher: the library that sends tokens to their experts.
        hides_routing: tokens travel alongside the computing of another micro-batch.
        separate_kernels: each small operation is a kernel of its framework, over 16-bit values.
        separate_norms: so is each operation of an RMS norm, over fp32 copies.
        loss_passes: bytes that logits' loss moves for each logit, in both passes.
        host_work: host time of a layer over the time of Megatron's.
        crossing_s: host time that a layer's tensor-parallel collectives take more for each rank
            if a pipeline crosses nodes.
        stops_early: a recomputed layer stops before its last product, whose result nothing reads.
        balanced_stages: the stage with the head has fewer layers, so that stages take as long.
        updated_weights: their way to other replicas under ZeRO 1.
        passing_gradient_bytes: of a gradient of one backward pass, all of which are kept until
            they are added to the sum, in buckets besides if there are replicas; 0: each is added
            at once.
        keeps_gate: a gated MLP keeps its activation function's output, too, as a product in
            a separate kernel does.
        overwrites_mlp: gradients inside an MLP are written over its activations.
        keeps_gathered: products keep their inputs as gathered from the parts of a sequence.
        layers_in_flight: layers' activations beyond a stage's for each micro-batch in a pipeline.
        states: formats of weights, gradients and moments; None: the framework's.
        fused_update: the optimizer updates weights in place, without a temporary of their size.
        loss: way from hidden states to the loss.
        schedule: order of the micro-batches in a pipeline.
    """

    framework: Framework = Framework.MEGATRON
    flash_attention: bool = True
    dropout: bool = False
    logit_bytes: float | None = None
    compiled: bool = False
    transformer_engine: bool = False
    async_tensor: bool = False
    graphed: bool = False
    plain_torch: bool = False
    gradient_bytes: float | None = None
    reduced_bytes: float = 2.0
    added_bytes: float = 0.0
    dispatcher: Dispatcher = Dispatcher.TORCH
    hides_routing: bool = False
    separate_kernels: bool = False
    separate_norms: bool = False
    loss_passes: float = 24.0
    host_work: float = 1.0
    crossing_s: float = 0.0
    stops_early: bool = False
    balanced_stages: bool = False
    updated_weights: UpdatedWeights = UpdatedWeights.OVERLAPPED
    passing_gradient_bytes: float = 0.0
    keeps_gate: bool = False
    overwrites_mlp: bool = False
    keeps_gathered: bool = False
    layers_in_flight: float = 0.0
    states: States | None = None
    fused_update: bool = False
    loss: Loss = Loss.WHOLE
    schedule: PipelineSchedule = PipelineSchedule()


OPTIMIZER_STATES: Mapping[str, float] = MappingProxyType(
    {
        "adamw": 2.0,
        "adam": 2.0,
        "adam8bit": 2 * (1 + 4 / 256) / 4,
        "adamw8bit": 2 * (1 + 4 / 256) / 4,
        "sgd": 0.0,
        "momentum": 1.0,
        "lion": 1.0,
        "adagrad": 1.0,
        "rmsprop": 1.0,
        "adafactor": 0.0,
        "muon": 1.0,
        "paged_adamw": 2.0,
        "paged_adamw8bit": 2 * (1 + 4 / 256) / 4,
    }
)
"""Values as large as a stored weight that each one keeps for it. 8 bits: parts of an fp32 value,
whatever the weight's format, with one fp32 scale for each 256 values (Dettmers et al. 2022, "8-bit
Optimizers via Block-wise Quantization"). Adafactor keeps sums of rows and columns only (Shazeer
and Stern 2018). Paged: in unified memory, from which the driver moves pages to the host
(github.com/bitsandbytes-foundation/bitsandbytes docs/source/optimizers.mdx, "Paged
optimizers")."""
_LIKELY_STATES = 2.0
"""Most scripts train with Adam, and too much is safer than too little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Memory and work of an optimizer's update.

    Attributes:
        name: None if the script makes its own.
        states: values as large as a stored weight that it keeps for each trained one.
    """

    name: str | None = None
    states: float = _LIKELY_STATES

    @staticmethod
    def from_name(name: str | None, *, more: int = 0) -> Optimizer:
        """An optimizer by its name in any case, with ``more`` values for each weight."""
        if name is None:
            return Optimizer()
        known = OPTIMIZER_STATES.get(name.lower(), _LIKELY_STATES)
        return Optimizer(name=name.lower(), states=known + more)

    @property
    def has_eight_bits(self) -> bool:
        """True if its values have 8 bits, whatever the weight's format."""
        return (self.name or "").endswith("8bit")

    @property
    def is_paged(self) -> bool:
        """True if its values leave the GPU when memory is short."""
        return (self.name or "").startswith("paged_")

    def moment_bytes(self, size: float) -> float:
        """Bytes of its values for a weight if a value of 16 or 32 bits has ``size`` bytes."""
        return self.states * (4.0 if self.has_eight_bits else size)

    @property
    def scales_with_batch(self) -> bool:
        """True if the learning rate follows the batch linearly (SGD), not by its root."""
        return self.name == "sgd"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPasses:
    """Forward passes through frozen models, such as a teacher, besides a micro-batch.

    Attributes:
        operations: of a micro-batch of ``tokens``.
        tokens: of all samples.
    """

    operations: tuple[OperationCost, ...]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The model and its training; equal for all candidates of one call.

    Attributes:
        model: shapes that formulas know, or a profile run's result; None before it.
        global_batch: samples of an optimizer step.
        sequence_length: tokens of a sequence; of an encoder-decoder those that its encoder reads.
        decoder_sequence_length: tokens of it that a decoder writes; None: as many.
        precision: of the matrix products.
        lora_rank: rank of adapters besides every matrix of the layers, whose own weights rest.
        weight_format: of those resting matrices; None: in the precision of the run.
        frozen: parts that get no gradients.
        capacity_factor: tokens for which an expert has room, as a multiple of an even share.
        beside: name and bytes of other memory of each rank, whatever the layout.
        frozen_passes: other passes that each rank runs; a profile's seconds have it already.
        activation_factor: a layer's saved memory by a trace, over the formulas' value.
        states, gradients, loss, dispatcher: as requested; None: the trainer's.
        updates_in_backward: each weight is updated as soon as its gradient is there, which is
            then freed.
        images: of a sample, which a tower in front of the model reads.
        sequences_per_sample: that the model is trained on, such as 2 of a pair of answers; the
            formulas of a known architecture read it.
    """

    model: Architecture | ModelSpec | None = None
    sequence_length: int = 1
    decoder_sequence_length: int | None = None
    global_batch: int = 1
    precision: Precision = Precision.BF16
    optimizer: Optimizer = Optimizer(name="adamw")
    software: Software = Software()
    lora_rank: int | None = None
    weight_format: WeightFormat | None = None
    frozen: frozenset[FrozenPart] = frozenset()
    capacity_factor: float = 1.0
    beside: tuple[tuple[str, int], ...] = ()
    frozen_passes: FrozenPasses | None = None
    activation_factor: float = 1.0
    sequences_per_sample: int = 1
    dispatcher: Dispatcher | None = None
    states: States | None = None
    gradients: GradientSum | None = None
    loss: Loss | None = None
    updates_in_backward: bool = False
    images: int = 1

    @property
    def batch_tokens(self) -> int:
        """Tokens of an optimizer step."""
        return self.global_batch * self.sequences_per_sample * self.sequence_length

    @property
    def trains_adapters(self) -> bool:
        """True if adapters are trained besides weights that rest."""
        return self.lora_rank is not None

    @property
    def trains_all(self) -> bool:
        """True if every weight is trained."""
        return not (self.trains_adapters or self.frozen)

    def of_adapters(self) -> Workload:
        """The same training of adapters, with the rank of most published ones (recalled)."""
        return replace(self, lora_rank=16)

    @property
    def architecture(self) -> Architecture:
        """The model by its shapes.

        Raises:
            TypeError: it is not known by its shapes.
        """
        if not isinstance(self.model, Architecture):
            raise TypeError("the shapes of this model are not known")
        return self.model

    @property
    def frozen_matrix_bytes(self) -> float:
        """Size of a weight in a frozen matrix of a layer."""
        if self.weight_format is None:
            return self.precision.value_bytes
        return self.weight_format.bytes_each

    @property
    def logit_tokens(self) -> int:
        """Tokens of a sample that logits are made of, for each other prediction once more."""
        if not self.architecture.encoder_layers:
            return self.sequence_length * (1 + self.architecture.predictions)
        return self.decoder_sequence_length or self.sequence_length
