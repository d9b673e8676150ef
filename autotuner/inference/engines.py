"""Behaviour of inference engines that follows neither from the model nor from the layout.

Counts are of kernels besides the matrix products, read in the public code of each engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import ConfigError, nearest_known

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHabits:
    """Habits of one engine.

    Attributes:
        is_eager: Python launches each kernel, which takes as long for a layer as the forward pass
            of a training does; otherwise a CUDA graph or a C++ host is ahead of the device.
        step_host_s: host time for a token, in which the device waits.
        small_kernels: of a layer outside of products and attention: norms, biases, activations.
        attention_kernels: rotation, cache update, scores, and the sum of their parts.
        step_kernels: embedding, last norm, and the choice of a token.
        short_messages: it has a recent NCCL, whose all-reduces of some kilobytes are faster.
        one_shot_bytes: up to this size an all-reduce is one kernel that reads its peers' memory;
            0: all are NCCL's.
        flash: attention of a prompt never stores its scores.
        fills_pipeline: as many batches are in flight as there are stages.
        repeats_keys: a key-value head may be on several ranks.
        chunk_tokens: tokens of a prompt that are computed at once; None: all of a batch.
        graph_bytes: graphs and workspaces of a rank besides its context.
    """

    is_eager: bool = False
    step_host_s: float = 0.0
    small_kernels: int
    attention_kernels: int
    step_kernels: int
    short_messages: bool = True
    one_shot_bytes: int = 0
    flash: bool = True
    fills_pipeline: bool = False
    repeats_keys: bool = False
    chunk_tokens: int | None = None
    graph_bytes: float = 0.0


ENGINE_HABITS = {
    # transformers, kernel by kernel: a norm is 6 of them, a rotation 10 (Llama of version 5)
    "native": EngineHabits(
        is_eager=True,
        small_kernels=18,
        attention_kernels=18,
        step_kernels=20,
    ),
    # CUDA graphs, fused norms, flash attention over a paged cache; schedules alongside the device,
    # by default since 0.14. custom_all_reduce.py: below 8 MiB; arg_utils.py: 8,192 tokens at once
    "vllm": EngineHabits(
        small_kernels=3,
        attention_kernels=4,
        step_kernels=8,
        one_shot_bytes=8 * _MIB,
        fills_pipeline=True,
        repeats_keys=True,
        chunk_tokens=8192,
        graph_bytes=768 * _MIB,
    ),
    # GptDecoder and T5 of FasterTransformer 5: masked multi-head attention is one kernel with its
    # bias and cache; a token is chosen by about ten kernels and read by the host
    "fastertransformer": EngineHabits(
        step_host_s=5e-5,
        small_kernels=4,
        attention_kernels=1,
        step_kernels=15,
        short_messages=False,
        flash=False,
    ),
}


def engine_habits(name: str) -> EngineHabits:
    """The habits of an engine.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in ENGINE_HABITS:
        known = nearest_known(name, ENGINE_HABITS)
        raise ConfigError(f"Inference engine {name!r} is unknown; {known}")
    return ENGINE_HABITS[name]
