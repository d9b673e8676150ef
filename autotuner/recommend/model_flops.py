"""Operations of one training step as NVIDIA's tools count them, for "Model TFLOPS" columns.

Gates, experts and grouped queries are left out, so that numbers compare with published ones of
that tool; exact counts are the cost model's. Source: NeMo-Framework-Launcher, auto_configurator,
``compare_throughput.py`` (24.12).
"""

from __future__ import annotations

from dataclasses import dataclass

from .families import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """What one step computes; of T5 ``layers`` are those of one stack.

    Attributes:
        sequence: tokens of a sample; of T5 those that the encoder reads.
        decoder_sequence: tokens that T5's decoder writes; not read for others.
    """

    global_batch: int
    layers: int
    hidden: int
    ffn: int
    vocabulary: int
    sequence: int
    decoder_sequence: int = 0


def step_flops(family: Family, step: StepShape) -> float:
    """Floating-point operations of forward and backward pass over the global batch."""
    if family.is_encoder_decoder:
        return _t5(step)
    return _bert(step) if family.name == "bert" else _gpt(step)


def _gpt(step: StepShape) -> float:
    tokens, hidden = step.global_batch * step.sequence, step.hidden
    layer = 24 * tokens * hidden**2 + 4 * tokens * step.sequence * hidden
    return 3 * step.layers * layer + 6 * tokens * hidden * step.vocabulary


def _bert(step: StepShape) -> float:
    tokens, hidden = step.global_batch * step.sequence, step.hidden
    beside = step.sequence / (6 * hidden) + step.vocabulary / (12 * hidden * step.layers)
    return 72 * tokens * step.layers * hidden**2 * (1 + beside)


def _t5(step: StepShape) -> float:
    hidden, ffn = step.hidden, step.ffn
    read, written = step.sequence, step.decoder_sequence
    encoder = 8 * read * hidden**2 + 4 * read**2 * hidden + 6 * read * hidden * ffn
    across = 4 * hidden**2 * (read + written) + 4 * read * written * hidden
    decoder = 8 * written * hidden**2 + 4 * written**2 * hidden + 6 * written * hidden * ffn
    layers = step.layers * (encoder + decoder + across)
    return 3 * step.global_batch * (layers + 2 * written * hidden * step.vocabulary)
