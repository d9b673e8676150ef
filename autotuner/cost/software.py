"""What a training does that neither its model nor its layout says.

Source of each row: its defaults in the public repository at the time of its published numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoconf_launch.core import (
    ConfigError,
    Framework,
    Optimizer,
    Precision,
    ResolvedConfig,
    Software,
    Workload,
    nearest_known,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerHabits:
    """Habits of a code; ``sequence_parallel`` where a table leaves it open and tp > 1.

    ``tf32``: products of fp32 are TF32's.
    """

    software: Software
    sequence_parallel: bool = False
    tf32: bool = False

    def apply_to(self, workload: Workload) -> Workload:
        """``workload`` with these habits; whether it is compiled is the user's to say."""
        software = replace(self.software, compiled=workload.software.compiled)
        precision = self.precision_for(workload.precision)
        return replace(workload, software=software, precision=precision)

    def precision_for(self, asked: Precision) -> Precision:
        """The format of its products where ``asked`` is the configuration's."""
        return Precision.TF32 if self.tf32 and asked is Precision.FP32 else asked

    def software_for(self, precision: Precision) -> Software:
        """What the code does; one that is not named computes in 8 bits by Transformer Engine."""
        engine = self.software.framework is Framework.AUTO and precision.is_quantized
        return replace(
            self.software, transformer_engine=engine or self.software.transformer_engine
        )


def configured_workload(config: ResolvedConfig) -> Workload:
    """What a configuration of our runtime says of a training, its model aside."""
    given = dict(config.optimizer.parameters) if config.optimizer else {}
    more = sum(bool(given.get(name)) for name in ("momentum", "amsgrad", "centered"))
    return Workload(
        optimizer=Optimizer.from_name(
            config.optimizer.kind if config.optimizer else None, more=more
        ),
        precision=config.precision,
    )


_MEGATRON = Software(framework=Framework.MEGATRON)
# 16-bit gradients and 8-bit weights by default in its recipes
_NEMO = replace(_MEGATRON, transformer_engine=True, gradient_bytes=2.0)
_FSDP = Software(framework=Framework.FSDP)
_DEEPSPEED = Software(framework=Framework.DEEPSPEED)
TRAINERS = {
    "auto": TrainerHabits(software=Software()),
    "native": TrainerHabits(software=replace(_FSDP, plain_torch=True)),
    # NVIDIA's containers, in which Megatron and NeMo run, switch TF32 on
    "megatron": TrainerHabits(software=_MEGATRON, tf32=True),
    # before flash attention and sequence parallelism: SC21, vTrain, DLPerf
    "megatron-2021": TrainerHabits(
        software=replace(_MEGATRON, flash_attention=False, dropout=True), tf32=True
    ),
    # full-iteration graphs in the recipes of experts in MXFP8, from its release 26.06 on
    "nemo": TrainerHabits(
        software=replace(_NEMO, graphed=True), sequence_parallel=True, tf32=True
    ),
    "nemo-2025": TrainerHabits(software=_NEMO, sequence_parallel=True, tf32=True),
    "deepspeed": TrainerHabits(software=_DEEPSPEED),
    "megatron-deepspeed": TrainerHabits(
        software=replace(_DEEPSPEED, flash_attention=False, dropout=True)
    ),
    "torchtitan": TrainerHabits(software=_FSDP, sequence_parallel=True),
    # the loss is compiled with the model since January 2025
    "torchtitan-2025": TrainerHabits(
        software=replace(_FSDP, fused_loss=True), sequence_parallel=True
    ),
    # loss_fn: fused_crossentropy
    "llm-foundry": TrainerHabits(software=replace(_FSDP, fused_loss=True)),
}


def trainer(name: str) -> TrainerHabits:
    """The habits of a code.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in TRAINERS:
        raise ConfigError(f"Trainer {name!r} is unknown; {nearest_known(name, TRAINERS)}")
    return TRAINERS[name]


_MATRICES_REPEATED = 0.5
"""Share of the GEMMs that torchtitan's selective recomputation repeats."""


def repeats_modules(software: Software) -> bool:
    """Whether selective recomputation makes norms, latent projections and experts' activations.

    Megatron-Core's ``recompute_modules`` (``layernorm``, ``mla_up_proj``, ``moe_act``) do so for
    layers that have them, as DeepSeek-AI 2024 (arXiv:2412.19437), section 3.2.3.
    """
    return software.flash_attention and software.framework in _MEGATRON_LIKE


_MEGATRON_LIKE = (Framework.AUTO, Framework.MEGATRON)


def repeated_products(software: Software) -> float:
    """Share of the GEMMs that selective recomputation repeats; 0 if small operations only."""
    return _MATRICES_REPEATED if software.framework is Framework.FSDP else 0.0


def is_compiled(software: Software) -> bool:
    """Whether small operations are fused, by a compiler or by a vendor's library."""
    return software.compiled or software.transformer_engine


def is_eager(software: Software) -> bool:
    """Whether each operation of PyTorch is a kernel of its own."""
    return software.plain_torch and not is_compiled(software)


def is_tensor_async(software: Software) -> bool:
    """Whether tensor-parallel communication is cut up to run beside its products."""
    return software.async_tensor or software.transformer_engine


def has_flat_gathers(software: Software) -> bool:
    """Whether weights of a layer are gathered as one buffer, not matrix by matrix."""
    return software.flash_attention and software.framework is not Framework.DEEPSPEED


def routes_by_domain(software: Software) -> bool:
    """Whether tokens leave for another domain once, and beside another micro-batch's computing.

    Megatron-Core does both with DeepEP or HybridEP and ``overlap_moe_expert_parallel_comm``, as
    its recipes have it where experts lie across domains; torch's own all-to-all does neither.
    """
    return software.flash_attention and software.framework in _MEGATRON_LIKE


def waits_for_routing(workload: Workload) -> bool:
    """Whether a layer with experts waits until the host knows how many tokens each has."""
    blocks = workload.precision in (Precision.MXFP8, Precision.NVFP4)
    return not (workload.software.graphed and blocks)


def overlaps_reduction(software: Software) -> bool:
    """Whether gradients are reduced beside the backward pass, as since flash attention's time."""
    return software.flash_attention


def kernel_traits(workload: Workload) -> tuple[object, ...]:
    """Everything of a workload that a step's time depends on, its model and lengths aside.

    Products of both 16-bit formats take as long: they have equal traits.
    """
    software, precision = workload.software, workload.precision
    return (
        Precision.BF16 if precision is Precision.FP16 else precision,
        software.flash_attention,
        software.transformer_engine,
        software.plain_torch,
        is_compiled(software),
        is_tensor_async(software),
        has_flat_gathers(software),
        routes_by_domain(software),
        waits_for_routing(workload),
        repeated_products(software),
    )
