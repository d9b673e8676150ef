"""A shape in the form of its family, for exact counts and predictions. Not: named models."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.core import Architecture, Experts

from .families import Family
from .shapes import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a family's models have in common beside their widths.

    Attributes:
        groups: heads for keys and values where they divide the others; 0: as many as those.
        experts: of which two see each token; 0: none.
    """

    gated: bool = True
    biases: bool = False
    learned_positions: bool = False
    tied: bool = False
    groups: int = 0
    experts: int = 0


_LLAMA = Form(groups=8)
FORMS = {
    "gpt3": Form(gated=False, biases=True, learned_positions=True, tied=True),
    "bert": Form(gated=False, biases=True, learned_positions=True, tied=True),
    "t5": Form(biases=True, learned_positions=True, tied=True),
    "mt5": Form(biases=True, learned_positions=True, tied=True),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": Form(groups=8, experts=8),
    "gemma": Form(tied=True),
    "nemotron": Form(gated=False, groups=8),
    "qwen": Form(),
    "qwen2": Form(),
    "baichuan2": Form(),
    "chatglm": Form(groups=2),
    "starcoder": Form(gated=False, biases=True, tied=True, groups=4),
}
"""As in NeMo's own configurations of each family (24.12); others are taken to be like Llama."""
EXPERTS_PER_TOKEN = 2


def form_of(family: Family) -> Form:
    """The family's form; Llama's for a family that nobody knows."""
    return FORMS.get(family.name, _LLAMA)


def key_value_heads(family: Family, heads: int) -> int:
    """Groups of queries, where they divide the heads."""
    groups = form_of(family).groups
    return groups if groups and heads % groups == 0 else heads


def architecture(family: Family, shape: Shape, vocabulary: int, sequence: int) -> Architecture:
    """The model that a base configuration of this shape describes.

    T5's layers stand for one of the encoder and one of the decoder each.
    """
    form, hidden = form_of(family), shape.hidden
    is_bert = family.name == "bert"
    experts = Experts(count=form.experts, per_token=EXPERTS_PER_TOKEN, ffn=shape.ffn)
    return Architecture(
        name=family.name,
        layers=shape.layers,
        encoder_layers=shape.layers if family.is_encoder_decoder else 0,
        hidden=hidden,
        heads=shape.heads,
        kv_heads=key_value_heads(family, shape.heads),
        head=shape.kv,
        ffn=shape.ffn,
        vocabulary=vocabulary,
        gated=form.gated,
        tied_embeddings=form.tied,
        positions=sequence if form.learned_positions else 0,
        biases=form.biases,
        causal=not is_bert,
        experts=experts if form.experts else None,
        # token types, the norm of embeddings, the pooler
        other_parameters=hidden * (2 + 2 + hidden + 1) if is_bert else 0,
    )


def runs_flash(model: Architecture) -> bool:
    """Whether NVIDIA's trainings of such a model attend by flash kernels.

    NeMo 1.0 builds GPT and its like on Transformer Engine, which does; its T5 and BERT mask and
    bias the scores (``masked_softmax_fusion`` in its configurations), so that these are stored.
    """
    return model.causal and not model.encoder_layers
