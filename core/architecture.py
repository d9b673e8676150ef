"""A transformer by its published numbers. Not: what it costs (autotuner), nor its spelling.

``tuning_spaces`` reads these from data files and Hugging Face configurations.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture-of-experts perceptron. ``first_dense`` layers have a plain one.

    ``shared`` experts see every token, beside the ``per_token`` chosen of ``count``.
    """

    count: int
    per_token: int
    ffn: int
    shared: int = 0
    first_dense: int = 0
    every: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): ranks and head parts.

    ``Architecture.head`` is then the part of a query without ``rope_head``.
    """

    query_rank: int | None
    key_value_rank: int
    rope_head: int
    value_head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Shapes of a transformer.

    Attributes:
        layers: decoder (or only) layers; ``encoder_layers`` come before them, with cross
            attention in each decoder layer.
        head: width of one attention head; ``kv_heads`` below ``heads`` is grouped-query attention.
        gated: the perceptron has three matrices (SwiGLU, GEGLU) instead of two.
        positions: learned positions; 0 for rotary or relative ones.
        causal: a decoder; False for BERT.
        window: tokens that attention looks back; None for all.
        other_parameters: weights that these shapes do not give, such as token types and poolers.
        other_layer_parameters: the same for each layer, such as norms and biases of its own kind.
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
    experts: Experts | None = None
    latent: LatentAttention | None = None
    other_parameters: int = 0
    other_layer_parameters: int = 0
