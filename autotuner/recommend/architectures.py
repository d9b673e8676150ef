"""A shape in the form of its family, for exact counts and predictions. Not: named models."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoconf_launch.core import Architecture, Experts

from .families import Family
from .shapes import Shape

EXPERTS_PER_TOKEN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a family's models have in common beside their widths, or one model of its own.

    Attributes:
        groups: heads for keys and values where they divide the others; 0: as many as those.
        experts: of which some see each token; 0: none.
        expert_ffn: width of one; 0: that of the perceptron.
        shared_ffn: width of what every token sees beside experts; 0: nothing.
        first_dense, every: leading layers without experts, and which of the others have some.
    """

    gated: bool = True
    biases: bool = False
    learned_positions: bool = False
    tied: bool = False
    groups: int = 0
    experts: int = 0
    experts_per_token: int = EXPERTS_PER_TOKEN
    expert_ffn: int = 0
    shared_ffn: int = 0
    first_dense: int = 0
    every: int = 1


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


def form_of(family: Family) -> Form:
    """The family's form; Llama's for a family that nobody knows."""
    return FORMS.get(family.name, _LLAMA)


def form_of_model(model: Architecture) -> Form:
    """The form of a published model."""
    experts = model.experts
    form = Form(
        gated=model.gated,
        biases=model.biases,
        learned_positions=model.positions > 0,
        tied=model.tied_embeddings,
        groups=model.kv_heads,
    )
    if experts is None:
        return form
    return replace(
        form,
        experts=experts.count,
        experts_per_token=experts.per_token,
        expert_ffn=experts.ffn,
        shared_ffn=experts.shared * experts.ffn,
        first_dense=experts.first_dense,
        every=experts.every,
    )


def key_value_heads(family: Family, heads: int) -> int:
    """Groups of queries, where they divide the heads."""
    return _groups(form_of(family), heads)


def architecture(
    family: Family, shape: Shape, vocabulary: int, sequence: int, form: Form | None = None
) -> Architecture:
    """The model that a base configuration of this shape describes.

    T5's layers stand for one of the encoder and one of the decoder each.

    Args:
        family: whose form it has by default.
        shape: its widths.
        vocabulary: rows of the embedding.
        sequence: tokens of a sample, for learned positions.
        form: the model's own.
    """
    form, hidden = form or form_of(family), shape.hidden
    is_bert = family.name == "bert"
    return Architecture(
        name=family.name,
        layers=shape.layers,
        encoder_layers=shape.layers if family.is_encoder_decoder else 0,
        hidden=hidden,
        heads=shape.heads,
        kv_heads=_groups(form, shape.heads),
        head=shape.kv,
        ffn=shape.ffn,
        vocabulary=vocabulary,
        gated=form.gated,
        tied_embeddings=form.tied,
        positions=sequence if form.learned_positions else 0,
        biases=form.biases,
        causal=not is_bert,
        experts=_experts(form, shape.ffn) if form.experts else None,
        # token types, the norm of embeddings, the pooler
        other_parameters=hidden * (2 + 2 + hidden + 1) if is_bert else 0,
    )


def _groups(form: Form, heads: int) -> int:
    return form.groups if form.groups and heads % form.groups == 0 else heads


def _experts(form: Form, ffn: int) -> Experts:
    width = form.expert_ffn or ffn
    return Experts(
        count=form.experts,
        per_token=form.experts_per_token,
        ffn=width,
        shared=round(form.shared_ffn / width),
        first_dense=form.first_dense,
        every=form.every,
    )


def runs_flash(model: Architecture) -> bool:
    """Whether NVIDIA's trainings of such a model attend by flash kernels.

    NeMo 1.0 builds GPT and its like on Transformer Engine, which does; its T5 and BERT mask and
    bias the scores (``masked_softmax_fusion`` in its configurations), so that these are stored.
    """
    return model.causal and not model.encoder_layers
