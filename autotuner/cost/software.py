"""Behaviour of training codes that follows neither from the model nor from the layout.

Source of each row: its defaults in the public repository at the time of its published numbers.

Small operations are all but products and attention. Codes with their own kernels read and write
each value once (Korthikanti et al. 2022, arXiv:2205.05198, section 4). Plain PyTorch has a kernel
for each operation, over fp32 weights, residuals, norms and losses, and ``torch.autocast`` casts
the inputs of products. Its bytes are counted, not fitted: in the operations that torch 2.11 runs
for a layer of a GPT-2 and of a Llama 3 (``benchmarks/gpu/train.py``), under autocast and in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autoconf_launch.core import (
    RUNTIME_KNOBS,
    Architecture,
    Dispatcher,
    Experts,
    Framework,
    Loss,
    Offload,
    Optimizer,
    Precision,
    ResolvedConfig,
    Software,
    States,
    Workload,
)

if TYPE_CHECKING:  # flags read the trainers without numpy, which functions of columns import
    from ..space import Floats
    from .hardware import Physics
    from .layout_columns import InnerLayouts, LayoutColumns, Stack

AUTO_TRAINER = "auto"
"""The name that leaves the choice of the trainer to the question."""
_MATRICES_REPEATED = 0.5
"""Share of the GEMMs that torchtitan's selective recomputation repeats."""
_FP32_BYTES = 4.0
_LOGIT_BYTES = {Framework.MEGATRON: 6.0, Framework.DEEPSPEED: 10.0, Framework.FSDP: 14.0}
"""Megatron-core's vocab_parallel_cross_entropy works in place on fp32 logits besides 16-bit ones;
older versions copy them once; torch's cross_entropy holds logits, log-softmax and two gradients
in fp32 besides 16-bit logits."""
_PARALLEL_LOGIT_BYTES = 18.0
"""torch's loss_parallel: its backward makes one more fp32 array."""
_LOSS_CHUNKS = 8
"""``num_output_chunks`` of torchtune's CEWithChunkedOutputLoss by default."""
_FUSED_BYTES = 8.0
"""Bytes of a piece's logits and their copies in fp32 for each value of the hidden states, whose
gradient is kept besides: a piece has about as many logits as the micro-batch has hidden values
(github.com/linkedin/Liger-Kernel src/liger_kernel/ops/fused_linear_cross_entropy.py)."""
UPDATE_PASSES = 3.0
"""Bytes that ``torch.optim``'s Adam moves for each weight over a fused kernel's: 80 in nine
kernels of its default ``foreach``."""
_PLAIN_KERNELS = 20
"""Kernels of a layer's forward pass besides its products; a backward pass has twice as many."""
_TURN_BYTES = 48.0
"""Bytes that rotary positions move for a value: cast, four products and two sums over halves,
joined, cast."""
_NORM_BYTES, _NARROW_NORM_BYTES = 28.0, 36.0
"""Bytes that a forward pass moves for a value of an RMS norm with a kernel for each operation, in
fp32 and in 16 bits, which are cast both ways (github.com/huggingface/transformers
src/transformers/models/llama/modeling_llama.py, LlamaRMSNorm); a backward pass twice as many."""
_FUSED_TURN_BYTES = 4.0
"""The same in a single kernel over 16-bit values, as flash-attention has it."""
_ATTENTION_LAUNCHES = 2 / 3
"""Part of a layer's kernels that are its attention's: a norm, projections, transposes, scores,
softmax, dropout, values and the sum with the residual, about twice as many as the MLP's."""
_REPEATED = 0.6
"""Operations that ``torch.utils.checkpoint`` runs again over a layer's operations without it,
views included: 85 of 142, counted in a GPT-2 under autocast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Abilities of a training code.

    Attributes:
        parallel: kinds besides data parallelism by their flags (tp, sp, pp, vpp, cp, ep), and
            ``uneven``: a separate micro-batch size for each data-parallel rank; ``layout``: any
            number of layers on each virtual stage.
        zero: each ZeRO stage with the code's own name for it.
        zero_in_pipelines: ZeRO stages that it combines with pipelines.
        zero_beside_tensor: ZeRO stages that it combines with tensor or context parallelism.
        offload: state that it can keep in host memory.
        recompute: none, selective, full, and layers: only some of a stage's in full.
        precisions: formats of its products.
        eight_bit_states: whether it has optimizers with states of 8 bits, and paged ones.
        adapters: whether it trains LoRA's adapters, on quantized weights too.
        states: formats of its states in 16-bit training.
        losses: ways to the loss.
        in_backward: whether it can update each weight in the backward pass.
        offload_alone: whether it offloads activations only without pipelines and recomputation.
        schedules: names of its pipeline schedules.
    """

    parallel: frozenset[str]
    zero: tuple[tuple[int, str], ...]
    zero_in_pipelines: frozenset[int]
    zero_beside_tensor: frozenset[int]
    offload: frozenset[Offload]
    recompute: frozenset[str]
    precisions: frozenset[Precision]
    eight_bit_states: bool = False
    adapters: bool = False
    states: frozenset[States] = frozenset()
    losses: frozenset[Loss] = frozenset()
    in_backward: bool = False
    offload_alone: bool = False
    schedules: frozenset[str] = frozenset({"1f1b"})

    def first_lack(self, workload: Workload) -> str | None:
        """The first thing of a training that the code lacks, whatever the layout."""
        if workload.precision not in self.precisions:
            return f"precision {workload.precision.value}"
        if workload.trains_adapters and not self.adapters:
            return "LoRA"
        optimizer = workload.optimizer
        if (optimizer.has_eight_bits or optimizer.is_paged) and not self.eight_bit_states:
            return f"optimizer {optimizer.name}"
        if workload.states is not None and workload.states not in self.states:
            return f"states {workload.states.value}"
        if workload.loss is not None and workload.loss not in self.losses:
            return f"loss {workload.loss.value}"
        if workload.updates_in_backward and not self.in_backward:
            return "update in the backward pass"
        if (schedule := workload.software.schedule.name) not in self.schedules:
            return f"schedule {schedule}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerHabits:
    """Habits of a code; ``sequence_parallel`` is its default if tp > 1.

    ``tf32``: products of fp32 are TF32's. ``checked``: architectures of GPUs on which its
    published runs were predicted.
    """

    software: Software
    abilities: Abilities
    source: str
    sequence_parallel: bool = False
    tf32: bool = False
    checked: frozenset[str] = frozenset()

    def apply_to(self, workload: Workload) -> Workload:
        """``workload`` with these habits; compiler and pipeline schedule are the user's."""
        given = workload.software
        software = replace(self.software, compiled=given.compiled, schedule=given.schedule)
        precision = self.precision_for(workload.precision)
        return replace(workload, software=software, precision=precision)

    def precision_for(self, asked: Precision) -> Precision:
        """The format of its products if the configuration has ``asked``."""
        return Precision.TF32 if self.tf32 and asked is Precision.FP32 else asked


def configured_workload(config: ResolvedConfig) -> Workload:
    """The training of a configuration of our runtime, without its model."""
    given = dict(config.optimizer.parameters) if config.optimizer else {}
    more = sum(bool(given.get(name)) for name in ("momentum", "amsgrad", "centered"))
    flags = {
        RUNTIME_KNOBS[name].software: value != RUNTIME_KNOBS[name].default
        for name, value in config.extras
        if name in RUNTIME_KNOBS and RUNTIME_KNOBS[name].software
    }
    return Workload(
        optimizer=Optimizer.from_name(
            config.optimizer.kind if config.optimizer else None, more=more
        ),
        precision=config.precision,
        software=replace(Software(), **flags),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerChoice:
    """The training code whose rules an answer follows, and why it was chosen."""

    name: str = "megatron"
    why: str = "default"


def repeats_modules(software: Software) -> bool:
    """True if selective recomputation makes norms, latent projections and experts' activations.

    Megatron-Core's ``recompute_modules`` (``layernorm``, ``mla_up_proj``, ``moe_act``) do so for
    layers that have them, as DeepSeek-AI 2024 (arXiv:2412.19437), section 3.2.3.
    """
    return software.flash_attention and software.framework is Framework.MEGATRON


def repeated_products(software: Software) -> float:
    """Share of the GEMMs that selective recomputation repeats; 0 if small operations only."""
    return _MATRICES_REPEATED if software.framework is Framework.FSDP else 0.0


def is_compiled(software: Software) -> bool:
    """True if small operations are fused, by a compiler or by a vendor's library."""
    return software.compiled or software.transformer_engine


def is_eager(software: Software) -> bool:
    """True if each operation of PyTorch is a separate kernel."""
    return software.plain_torch and not is_compiled(software)


def is_tensor_async(software: Software) -> bool:
    """True if tensor-parallel communication is cut up to run alongside its products."""
    return software.async_tensor or software.transformer_engine


def has_flat_gathers(software: Software) -> bool:
    """True if weights of a layer are gathered as one buffer, not matrix by matrix."""
    return software.flash_attention and software.framework is not Framework.DEEPSPEED


def routes_by_domain(workload: Workload) -> bool:
    """True if tokens leave for another domain once, as DeepEP and HybridEP send them."""
    return (workload.dispatcher or workload.software.dispatcher) is not Dispatcher.TORCH


def waits_for_routing(workload: Workload) -> bool:
    """True if a layer with experts waits until the host knows each expert's tokens."""
    blocks = workload.precision in (Precision.MXFP8, Precision.NVFP4)
    return not (workload.software.graphed and blocks)


def overlaps_reduction(software: Software) -> bool:
    """True if gradients are reduced during the backward pass, as since flash attention's time."""
    return software.flash_attention


def stops_early(software: Software) -> bool:
    """True if recomputation is ``torch.utils.checkpoint``'s without reentry, of torch 2.1 on."""
    return software.stops_early or software.plain_torch


def sums_shards(software: Software) -> bool:
    """True if each micro-batch casts weights or adds up their gradients in separate kernels."""
    return software.plain_torch or software.added_bytes > 0.0


def eager_copies(workload: Workload) -> tuple[float, float, float]:
    """Bytes of a hidden value that eager RMS norms keep, that a cast adds, and between layers.

    A norm keeps its input in fp32 and its result before the weight. Under autocast over fp32
    weights the sums between layers are fp32, and each product casts its own input. Counted in
    the tensors that transformers' Llama saves for its backward pass.
    """
    from .model_state import state_format

    size, software = float(workload.precision.value_bytes), workload.software
    is_separate = software.separate_norms and not is_compiled(software)
    if not (is_separate and workload.architecture.gated):
        return size, 0.0, size
    if size == 2 and state_format(workload) is States.FP32 and not workload.trains_adapters:
        return 2 * _FP32_BYTES, size, _FP32_BYTES
    return _FP32_BYTES + size, 0.0, size


def keeps_gate(software: Software) -> bool:
    """True if a gated MLP's activation function and its product are separate kernels."""
    return software.keeps_gate or (software.separate_norms and not is_compiled(software))


def loss_bytes(columns: LayoutColumns, workload: Workload, tokens_C: Floats) -> Floats:
    """Logits and loss of one micro-batch, split over the vocabulary, and the last hidden states.

    Pipelines keep no others: the last stage of our runtime returns only its loss, and torchtitan
    passes ``return_outputs=False`` (pull request 1922, October 2025).
    """
    import numpy as np

    model, size = workload.architecture, workload.precision.value_bytes
    framework, software = workload.software.framework, workload.software
    is_parallel_C = columns.tensor_C > 1
    is_fsdp = framework is Framework.FSDP
    each_C = np.where(is_fsdp & is_parallel_C, _PARALLEL_LOGIT_BYTES, _LOGIT_BYTES[framework])
    if software.logit_bytes is not None:
        each_C = np.asarray(software.logit_bytes)
    loss = workload.loss or software.loss
    if loss is not Loss.WHOLE:
        chunked_C = size + (each_C - size) / _LOSS_CHUNKS
        each_C = np.minimum(each_C, chunked_C)
    logits_C = tokens_C / columns.tensor_C * model.vocabulary * each_C
    if loss is Loss.FUSED:
        logits_C = np.minimum(logits_C, tokens_C * model.hidden * (size + _FUSED_BYTES))
    gathered_C = columns.sequence_parallel_C & is_parallel_C
    return np.asarray(logits_C + tokens_C * (2 * model.hidden * size) * gathered_C)


def kernel_traits(workload: Workload) -> tuple[object, ...]:
    """Everything of a workload that a step's time depends on, its model and lengths aside.

    Products of both 16-bit formats take as long: they have equal traits.
    """
    from .model_state import state_format

    software, precision = workload.software, workload.precision
    return (
        Precision.BF16 if precision is Precision.FP16 else precision,
        software.flash_attention,
        software.transformer_engine,
        software.plain_torch,
        is_compiled(software),
        is_tensor_async(software),
        has_flat_gathers(software),
        routes_by_domain(workload),
        waits_for_routing(workload),
        repeated_products(software),
        software.reduced_bytes,
        software.added_bytes,
        software.updated_weights,
        software.hides_routing,
        software.separate_kernels,
        software.separate_norms,
        software.loss_passes,
        software.host_work,
        software.crossing_s,
        software.balanced_stages,
        stops_early(software),
        state_format(workload) is States.BF16,
    )


def small_traffic(
    workload: Workload,
    inner: InnerLayouts,
    physics: Physics,
    experts: Experts | None,
    widening: float,
) -> tuple[tuple[Floats, int], tuple[Floats, int]]:
    """Bytes and kernels of a layer's small operations, forward and backward.

    ``widening`` is the size of a value over the 16 bits that fused kernels are counted in.
    """
    import numpy as np

    tokens = np.asarray(inner.micro_U * workload.sequence_length / inner.context_U, np.float64)
    is_fused = is_compiled(workload.software)
    if workload.software.separate_kernels or is_eager(workload.software):
        there, back = _plain_bytes(workload, inner, tokens, experts)
        kernels = _PLAIN_KERNELS
    else:
        share = physics.small_passes * (physics.compiled_traffic if is_fused else 1.0)
        there = _fused_bytes(workload, inner, tokens, experts) * share * widening
        back, kernels = 2.0 * there, 6 if is_fused else 14
    cast, summed = _weight_bytes(workload)
    if summed:
        weights = layer_weights(workload, inner, experts) / inner.data_U
        there, back = there + cast * weights, back + summed * weights
    return (there, kernels), (back, 2 * kernels)


def layer_weights(workload: Workload, inner: InnerLayouts, experts: Experts | None) -> Floats:
    """Weights of a layer on the ranks that share it out."""
    import numpy as np

    from ..layers import dense_layer_weights, expert_weights, shared_weights

    model = workload.architecture
    if experts is None:
        return np.asarray(dense_layer_weights(model) / inner.tensor_U)
    routed = expert_weights(model, experts) / inner.expert_U
    return np.asarray((shared_weights(model, experts) + routed) / inner.tensor_U)


def _fused_bytes(
    workload: Workload, inner: InnerLayouts, tokens: Floats, experts: Experts | None
) -> Floats:
    """Bytes of norms, biases, activations, dropout and residuals in the forward pass.

    What chosen experts move is not among them (``layer``). Norms and residuals see the whole width
    on each rank unless the sequence is parallel.
    """
    import numpy as np

    model = workload.architecture
    tp = inner.tensor_U
    wide = 12.0 * _parts(model, experts) * model.hidden
    outside = wide / np.where(inner.sequence_U, tp, 1)
    ffn = model.ffn if experts is None else experts.ffn * experts.shared
    activation = (6.0 if model.gated else 4.0) * ffn
    inside = (16.0 * model.heads * model.head + activation) / tp
    return np.asarray(tokens * (outside + inside))


def _parts(model: Architecture, experts: Experts | None) -> int:
    """Parts of a layer with a norm and a residual: an attention or a state, and an MLP."""
    from ..layers import has_mixer

    return has_mixer(model) + (model.ffn > 0 or experts is not None)


def _plain_bytes(
    workload: Workload, inner: InnerLayouts, tokens: Floats, experts: Experts | None
) -> tuple[Floats, Floats]:
    """Traffic of plain PyTorch, in the forward and in the backward pass.

    Values besides products have the size of the weights.
    Forward: two norms read and write, three products have their input cast, and two sums add what
    a product gave to the residual. Backward: each norm has two kernels, which read and write five
    times, five gradients are cast and three added; biases sum theirs, and the parts of queries,
    keys and values are put together. In both: the activation, and rotary positions in fp32.
    """
    import numpy as np

    model, size, cast = workload.architecture, _product_bytes(workload), _cast_bytes(workload)
    each = _value_bytes(workload)
    turn = _TURN_BYTES if workload.software.plain_torch else _FUSED_TURN_BYTES
    norm, norm_back = 2.0 * each, 5.0 * each
    if workload.software.separate_norms and model.gated:
        norm = _NORM_BYTES if each == _FP32_BYTES else _NARROW_NORM_BYTES
        norm_back = 2.0 * norm
    hidden = model.hidden / np.where(inner.sequence_U, inner.tensor_U, 1)
    ffn = (model.ffn if experts is None else experts.ffn * experts.shared) / inner.tensor_U
    keys = model.kv_heads * model.head / inner.tensor_U
    queries = model.heads * model.head / inner.tensor_U
    turned = 0.0 if model.positions else turn * (queries + keys)
    biases = size * (ffn + 2.0 * hidden + queries + 2.0 * keys) if model.biases else 0.0
    wide_forward, wide_backward = (5.0, 13.0) if model.gated else (2.0, 3.0)
    forward = hidden * (2.0 * norm + 3.0 * cast + 2.0 * (2.0 * each + size))
    backward = hidden * (2.0 * norm_back + 5.0 * cast + 9.0 * each)
    forward = forward + wide_forward * size * ffn + turned
    backward = backward + wide_backward * size * ffn + turned + biases + 8.0 * size * keys
    return np.asarray(tokens * forward), np.asarray(tokens * backward)


def _weight_bytes(workload: Workload) -> tuple[float, float]:
    """Bytes that each micro-batch moves for a weight besides its products, forward and backward.

    Plain PyTorch casts weight and gradient, and adds the gradient to those before.
    """
    from .model_state import trained_share

    software, cast = workload.software, _cast_bytes(workload)
    if not software.plain_torch:
        return 0.0, trained_share(workload) * software.added_bytes
    if workload.trains_adapters or workload.weight_format is not None:  # what rests needs no cast
        return 0.0, 0.0
    return cast, trained_share(workload) * (cast + 3.0 * _value_bytes(workload))


def table_bytes(workload: Workload) -> float:
    """Both together for a weight of embedding and head.

    Gradients of plain PyTorch are tables there, which are added.
    """
    from .model_state import trained_share

    tables = 4.0 * _value_bytes(workload) * trained_share(workload)
    return sum(_weight_bytes(workload)) + (tables if workload.software.plain_torch else 0.0)


def _product_bytes(workload: Workload) -> float:
    """Size of a value that goes into a product."""
    return _FP32_BYTES if workload.precision.value_bytes == _FP32_BYTES else 2.0


def _value_bytes(workload: Workload) -> float:
    """Size of a value besides products: fp32 under ``torch.autocast`` over fp32 weights."""
    from .model_state import state_format

    software = workload.software
    is_wide = software.plain_torch and state_format(workload) is States.FP32
    return _FP32_BYTES if is_wide else _product_bytes(workload)


def _cast_bytes(workload: Workload) -> float:
    """Bytes that a cast of one value for a product moves; autocast is off in fp32."""
    size = _product_bytes(workload)
    if _value_bytes(workload) < _FP32_BYTES:
        return 0.0
    return _FP32_BYTES + size if size < _FP32_BYTES else 0.0


def host_s(stack: Stack, inner: InnerLayouts, physics: Physics, unfused_U: Floats) -> Floats:
    """Host time to launch a layer of any size."""
    import numpy as np

    from ..layers import has_mixer
    from .layout_columns import FULL

    model = stack.workload.architecture
    launches = 1.0 + _ATTENTION_LAUNCHES * (stack.attentions - 1)
    if not has_mixer(model):
        launches = launches - _ATTENTION_LAUNCHES
    elif model.experts is None and not model.ffn:
        launches = launches - (1.0 - _ATTENTION_LAUNCHES)
    softmax = physics.unfused_softmax_s * unfused_U * stack.attentions
    sums = stack.joins * physics.collective_launch_s * np.log2(inner.tensor_U)
    forward = launches * physics.layer_forward_s + softmax + sums
    backward = launches * (physics.layer_backward_s - physics.layer_forward_s)
    whole = 2.0 * forward + backward
    is_plain = stack.workload.software.plain_torch
    again = np.where(inner.recompute_U == FULL, _REPEATED * whole if is_plain else forward, 0.0)
    software = stack.workload.software
    work = software.host_work * (physics.layer_compiled if is_compiled(software) else 1.0)
    crossing = software.crossing_s * np.where(inner.tensor_U > 1, inner.tensor_U, 0)
    return np.asarray((whole + again) * work + crossing)
