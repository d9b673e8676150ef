"""What an inference engine does that neither its model nor its layout says.

Counts are of kernels beside the matrix products, read in the public code of each engine; constants
of time are those of training (``Physics``) where both have them.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import ConfigError, nearest_known

from ..cost import CONTEXT_BYTES, DEFAULT_PHYSICS

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHabits:
    """Habits of one engine.

    Attributes:
        layer_host_s: what the host takes to launch a layer; 0 where a CUDA graph replays it or
            where a C++ host is always ahead of the device.
        step_host_s: what it takes for a token, in which the device waits.
        small_kernels: of a layer outside of products and attention: norms, biases, activations.
        attention_kernels: rotation, cache update, scores, and the sum of their parts.
        step_kernels: embedding, last norm, and the choice of a token.
        short_messages: its NCCL is of today, whose all-reduces of some kilobytes are quicker.
        one_shot_bytes: up to this size an all-reduce is one kernel that reads its peers' memory;
            0: all are NCCL's.
        flash: attention of a prompt never stores its scores.
        fills_pipeline: as many batches are in flight as there are stages.
        repeats_keys: a key-value head may be on several ranks.
        chunk_tokens: tokens of a prompt that are computed at once; None: all of a batch.
        overhead_bytes: context, workspaces, buffers and graphs of a rank on a GPU.
    """

    layer_host_s: float = 0.0
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
    overhead_bytes: float = CONTEXT_BYTES


INFERENCE_ENGINES = {
    # transformers, kernel by kernel: a norm is 6 of them, a rotation 10 (Llama of version 5)
    "native": EngineHabits(
        layer_host_s=DEFAULT_PHYSICS.layer_forward_s,
        small_kernels=18,
        attention_kernels=18,
        step_kernels=20,
    ),
    # CUDA graphs, fused norms, flash attention over a paged cache, scheduling beside the device;
    # custom_all_reduce.py: below 8 MiB; arg_utils.py: 8,192 tokens are computed at once
    "vllm": EngineHabits(
        small_kernels=3,
        attention_kernels=4,
        step_kernels=8,
        one_shot_bytes=8 * _MIB,
        fills_pipeline=True,
        repeats_keys=True,
        chunk_tokens=8192,
        overhead_bytes=2 * CONTEXT_BYTES,
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


def inference_engine(name: str) -> EngineHabits:
    """The habits of an engine.

    Raises:
        ConfigError: the name is unknown.
    """
    if name not in INFERENCE_ENGINES:
        known = nearest_known(name, INFERENCE_ENGINES)
        raise ConfigError(f"Inference engine {name!r} is unknown; {known}")
    return INFERENCE_ENGINES[name]
