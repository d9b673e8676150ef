"""Parameters of a shape as NVIDIA's tools count them. Not: the exact count (cost/parameter_count).

GPT's leaves out the width of the perceptron, gates, experts and grouped queries.
Source: NeMo-Framework-Launcher, auto_configurator, ``_calculate_model_size`` (24.12).
"""

from __future__ import annotations

from .families import Rules
from .shapes import Shape


def nemo_parameters_b(rules: Rules, shape: Shape, vocabulary: int, sequence: int) -> float:
    """Billions of parameters."""
    if rules is Rules.GPT:
        return _gpt(shape, vocabulary, sequence)
    if rules is Rules.BERT:
        return _bert(shape, vocabulary, sequence)
    return _t5(shape, vocabulary, sequence)


def _gpt(shape: Shape, vocabulary: int, sequence: int) -> float:
    layers, hidden = shape.layers, shape.hidden
    beside = 13 / (12 * hidden) + (vocabulary + sequence) / (12 * layers * hidden)
    return 12 * layers * hidden**2 * (1 + beside) / 1e9


def _t5(shape: Shape, vocabulary: int, sequence: int) -> float:
    layers, ffn, projected = shape.layers, shape.ffn, shape.heads * shape.kv
    for_hidden = 2 + 6 * layers * ffn + layers * (21 + 12 * projected) + sequence + vocabulary
    return (3 * layers * ffn + 3 * layers * projected + shape.hidden * for_hidden) / 1e9


def _bert(shape: Shape, vocabulary: int, sequence: int) -> float:
    layers, hidden, ffn = shape.layers, shape.hidden, shape.ffn
    block = ffn + hidden * (4 * hidden + 3 * shape.heads + 2 * ffn + 6)
    return (layers * block + hidden * (vocabulary + sequence + hidden + 5)) / 1e9
