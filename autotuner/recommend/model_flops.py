"""Operations of one training step as NVIDIA's tools count them, for "Model TFLOPS" columns.

Gates, experts and grouped queries are left out, so that numbers compare with published ones of
that tool. Not: exact counts (the cost model's).
Source: NeMo-Framework-Launcher, auto_configurator, ``compare_throughput.py`` (24.12).
"""

from __future__ import annotations

from dataclasses import dataclass

from .families import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleShape:
    """What is computed of one sample; of T5 ``layers`` are those of one stack.

    Attributes:
        sequence: tokens of a sample; of T5 those that the encoder reads.
        decoder_sequence: tokens that T5's decoder writes; not read for others.
    """

    layers: int
    hidden: int
    ffn: int
    vocabulary: int
    sequence: int
    decoder_sequence: int = 128


def step_flops(family: Family, shape: SampleShape, global_batch: int) -> float:
    """Floating-point operations of forward and backward pass over the global batch."""
    if family.is_encoder_decoder:
        return global_batch * _t5(shape)
    return global_batch * (_bert(shape) if family.name == "bert" else _gpt(shape))


def _gpt(shape: SampleShape) -> float:
    tokens, hidden = shape.sequence, shape.hidden
    layer = 24 * tokens * hidden**2 + 4 * tokens**2 * hidden
    return 3 * shape.layers * layer + 6 * tokens * hidden * shape.vocabulary


def _bert(shape: SampleShape) -> float:
    tokens, hidden = shape.sequence, shape.hidden
    beside = tokens / (6 * hidden) + shape.vocabulary / (12 * hidden * shape.layers)
    return 72 * tokens * shape.layers * hidden**2 * (1 + beside)


def _t5(shape: SampleShape) -> float:
    hidden, ffn = shape.hidden, shape.ffn
    read, written = shape.sequence, shape.decoder_sequence
    encoder = 8 * read * hidden**2 + 4 * read**2 * hidden + 6 * read * hidden * ffn
    across = 4 * hidden**2 * (read + written) + 4 * read * written * hidden
    decoder = 8 * written * hidden**2 + 4 * written**2 * hidden + 6 * written * hidden * ffn
    layers = shape.layers * (encoder + decoder + across)
    return 3 * (layers + 2 * written * hidden * shape.vocabulary)
