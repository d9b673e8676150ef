"""Bytes that one layer keeps for its backward pass, for each token. Not: how many are kept.

Every kind has a ``split`` part, shared by the tensor-parallel ranks, and a ``whole`` part, which
only sequence parallelism shares. All numbers depend on the model and the training alone, so that
they are computed once for any number of candidates.

Source:
    Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
    sections 4.1 and 4.2: 10 sbh + (24 sbh + 5 a s^2 b) / t in 16 bits with dropout. Generalised
    here to grouped queries, gated perceptrons, experts, latent attention and flash attention
    (Dao et al. 2022: of the scores only one fp32 sum for each token and head remains).
"""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import Architecture, Recompute

from .training_setup import Framework, TrainingSetup

_MASK_BYTES = 1
_SUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class Split:
    """Bytes for each token: ``whole`` on each tensor-parallel rank, ``split`` over them."""

    whole: float = 0.0
    split: float = 0.0

    def __add__(self, other: Split) -> Split:
        return Split(self.whole + other.whole, self.split + other.split)

    def times(self, factor: float) -> Split:
        """Both parts scaled."""
        return Split(self.whole * factor, self.split * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """What a layer keeps, by kind.

    Attributes:
        scores: the matrix of attention scores, its softmax and dropout; none with flash attention.
    """

    norms: Split = Split()
    attention: Split = Split()
    scores: Split = Split()
    mlp: Split = Split()
    dropout: Split = Split()

    @property
    def total(self) -> Split:
        """All kinds."""
        return self.norms + self.attention + self.scores + self.mlp + self.dropout


def layer_activations(
    a: Architecture, setup: TrainingSetup, framework: Framework, *, sparse: bool, crossed: bool
) -> LayerActivations:
    """What a layer keeps without recomputation; ``crossed`` ones attend to an encoder, too."""
    size = setup.value_bytes
    attentions = 2 if crossed else 1
    product_bytes = _product_bytes(setup, framework)
    norms = Split(whole=(attentions + 1) * a.hidden * size)
    dropout = Split(whole=(attentions + 1) * a.hidden * _MASK_BYTES) if setup.dropout else Split()
    return LayerActivations(
        norms=norms,
        attention=_attention(a, setup, product_bytes).times(attentions),
        scores=_scores(a, setup).times(attentions),
        mlp=_experts(a, setup, product_bytes) if sparse else _mlp(a, a.ffn, size, product_bytes),
        dropout=dropout,
    )


def selective_activations(
    a: Architecture, setup: TrainingSetup, framework: Framework, *, sparse: bool, crossed: bool
) -> LayerActivations:
    """What a layer keeps with selective recomputation.

    Megatron and DeepSpeed compute attention scores again (Korthikanti et al. 2022, section 5).
    torchtitan keeps the input, attention's output and every second matrix product.
    """
    every = layer_activations(a, setup, framework, sparse=sparse, crossed=crossed)
    if framework is not Framework.FSDP:
        return LayerActivations(
            norms=every.norms, attention=every.attention, mlp=every.mlp, dropout=every.dropout
        )
    size, attentions = setup.value_bytes, 2 if crossed else 1
    queries, keys, values = _widths(a)
    # of q, k, v, out, gate, up, down the 1st, 3rd, 5th and 7th; of qkv, out, up, down two
    products = queries + values if a.gated else queries + keys + values
    attention = Split(split=(products + values) * size + a.heads * _SUM_BYTES)
    ffn = _active_ffn(a, setup) if sparse else a.ffn
    return LayerActivations(
        norms=Split(whole=a.hidden * size),
        attention=attention.times(attentions),
        mlp=Split(whole=a.hidden * size if a.gated else 0.0, split=ffn * size),
    )


def kept(
    a: Architecture,
    setup: TrainingSetup,
    framework: Framework,
    kind: Recompute,
    *,
    sparse: bool = False,
    crossed: bool = False,
) -> LayerActivations:
    """What a layer keeps that is not recomputed in full."""
    wanted = selective_activations if kind is Recompute.SELECTIVE else layer_activations
    return wanted(a, setup, framework, sparse=sparse, crossed=crossed)


def backward_temporaries(a: Architecture, setup: TrainingSetup, *, sparse: bool) -> Split:
    """Gradients that live beside a layer's activations at its fullest moment."""
    size = setup.value_bytes
    ffn = _active_ffn(a, setup) if sparse else a.ffn
    scores = 0 if setup.flash_attention else 2 * a.heads * setup.sequence * size
    wide = max((3 if a.gated else 2) * ffn * size, scores)
    return Split(whole=2 * a.hidden * size, split=wide)


def _attention(a: Architecture, setup: TrainingSetup, product_bytes: int) -> Split:
    """The input of the projections; queries, keys, values; the output, which a product reads."""
    size = setup.value_bytes
    queries, keys, values = _widths(a)
    sums = a.heads * _SUM_BYTES if setup.flash_attention else 0
    inner = (queries + keys + values + _out_width(a)) * size + sums
    if a.latent:
        inner += (a.latent.query_rank or 0) * 2 * size
        return Split(
            whole=a.hidden * product_bytes
            + (2 * a.latent.key_value_rank + a.latent.rope_head) * size,
            split=inner,
        )
    return Split(whole=a.hidden * product_bytes, split=inner)


def _widths(a: Architecture) -> tuple[int, int, int]:
    """Values of one token's queries, keys and values."""
    if a.latent:
        width = a.heads * (a.head + a.latent.rope_head)
        return width, width, a.heads * a.latent.value_head
    return a.heads * a.head, a.kv_heads * a.head, a.kv_heads * a.head


def _out_width(a: Architecture) -> int:
    return a.heads * (a.latent.value_head if a.latent else a.head)


def _scores(a: Architecture, setup: TrainingSetup) -> Split:
    """Softmax, its dropout's mask and result: 5 a s^2 b with dropout in 16 bits."""
    if setup.flash_attention:
        return Split()
    each = setup.value_bytes + ((_MASK_BYTES + setup.value_bytes) if setup.dropout else 0)
    return Split(split=a.heads * setup.sequence * each)


def _mlp(a: Architecture, ffn: int, size: int, product_bytes: int) -> Split:
    """Input, what the activation function reads (twice that when gated), what it gives."""
    inner = (2 if a.gated else 1) * ffn * size + ffn * product_bytes
    return Split(whole=a.hidden * product_bytes, split=inner)


def _experts(a: Architecture, setup: TrainingSetup, product_bytes: int) -> Split:
    """Each token's copies to its experts, their perceptrons and results, and the router."""
    assert a.experts is not None
    size, experts = setup.value_bytes, a.experts
    copies = experts.per_token * setup.capacity_factor
    one = _mlp(a, experts.ffn, size, product_bytes)
    routed = Split(split=one.split).times(copies)
    moved = Split(
        whole=copies * a.hidden * (product_bytes + size) + experts.count * 2 * _SUM_BYTES
    )
    shared = one.times(experts.shared) if experts.shared else Split(whole=one.whole)
    return routed + moved + shared


def _active_ffn(a: Architecture, setup: TrainingSetup) -> float:
    assert a.experts is not None
    return a.experts.ffn * (a.experts.per_token * setup.capacity_factor + a.experts.shared)


def _product_bytes(setup: TrainingSetup, framework: Framework) -> int:
    """Transformer Engine keeps the inputs of matrix products in 8 bits, torchao does not."""
    fp8 = setup.precision.is_fp8 and framework is Framework.MEGATRON
    return 1 if fp8 else setup.value_bytes
