"""What frameworks demand of a batch and its split, whoever launches it. Not: any spelling.

``megatron/training/arguments.py`` of Megatron-LM 0.6.0 and later, ``transformer/moe/moe_layer.py``
and ``transformer/transformer_config.py`` of megatron-core 0.16.1 (PyPI).
"""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.recommend.pretraining import Pretraining


def with_whole_steps(base: Pretraining) -> tuple[Pretraining, tuple[str, ...]]:
    """The training with a micro-batch that divides what a replica sees of a batch, and why.

    NVIDIA's base configurations start a search, which divides the batch itself; a training with
    one as it is ends before its first step.
    """
    split = base.split
    each, rest = divmod(split.global_batch, split.data)
    if rest:
        return base, (
            f"whole steps: a global batch of {split.global_batch} is not a multiple of "
            f"{split.data} replicas; give fewer nodes, more model parallelism or a larger batch",
        )
    micro = next(size for size in range(min(split.micro_batch, each), 0, -1) if each % size == 0)
    if micro == split.micro_batch:
        return base, ()
    note = (
        f"micro_batch = {split.micro_batch}: {split.data} replicas see {each} samples each of a "
        f"batch, so {micro} stands for it"
    )
    return replace(base, split=replace(split, micro_batch=micro)), (note,)


def splits_sequence(base: Pretraining) -> bool:
    """Whether norms and dropouts are split along the sequence.

    Tensor parallelism is needed for it, and experts need it then; the losses are the same.
    """
    split = base.split
    return split.tensor > 1 and (split.sequence_parallel or base.model.experts > 0)


def groups_told(base: Pretraining) -> tuple[str, ...]:
    """Where tensor parallelism goes beyond the groups of keys and values, as Megatron-core has it.

    0.16.1 copies groups to ranks; 0.15.0 and earlier refuse.
    """
    groups, tensor = base.model.groups, base.split.tensor
    if groups % tensor == 0:
        return ()
    return (
        f"{groups} groups of keys and values on {tensor} tensor-parallel ranks, for Megatron-core "
        "before 0.16: there tensor parallelism must divide them",
    )


def layers_per_stage(base: Pretraining) -> int | None:
    """Layers of a virtual pipeline stage; None without one, or where stages are not equal."""
    split = base.split
    stages = split.pipeline * (split.virtual or 0)
    if split.pipeline < 2 or not stages or base.model.layers % stages:
        return None
    return base.model.layers // stages
