"""Kinds of layers of a model, their matrices, and counts of both.

A model of one kind is an ``Architecture`` without ``kinds``; sums over a model's kinds are made
once for a model, not for each candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from autoconf_launch.core import Architecture, Experts, LayerKind, StateForm

from .indexers import indexer_weights
from .states import state_weights


def attention_kinds(model: Architecture) -> tuple[tuple[float, Architecture], ...]:
    """Shares of the layers that are alike but for experts, and a model of only such layers."""
    if model.kinds:
        return tuple((one.layers / model.layers, one) for one in _kinds(model))
    if not model.full_every or (model.window is None and model.state is None):
        return ((1.0, model),)
    full = replace(model, window=None, state=None, full_every=0)
    share = 1.0 / model.full_every
    return ((share, full), (1.0 - share, replace(model, full_every=0)))


def uniform_parts(model: Architecture) -> tuple[Architecture, ...]:
    """Models of the layers of each of ``kinds``; the model itself if it has none."""
    return _kinds(model) if model.kinds else (model,)


@lru_cache(maxsize=256)
def _kinds(model: Architecture) -> tuple[Architecture, ...]:
    return tuple(_of_kind(model, kind) for kind in model.kinds)


def _of_kind(model: Architecture, kind: LayerKind) -> Architecture:
    experts = replace(model.experts, first_dense=0, every=1) if model.experts else None
    heads = model.heads if kind.heads is None else kind.heads
    return replace(
        model,
        kinds=(),
        layers=kind.count,
        heads=heads,
        kv_heads=model.kv_heads if kind.kv_heads is None else kind.kv_heads,
        head=model.head if kind.head is None else kind.head,
        ffn=model.ffn if kind.ffn is None else kind.ffn,
        window=kind.window,
        state=kind.state,
        full_every=0,
        streams=kind.streams,
        experts=experts if kind.experts else None,
        latent=model.latent if heads else None,
        indexer=model.indexer if heads else None,
        front=None,
        other_layer_parameters=kind.other_parameters,
    )


def expert_layers(architecture: Architecture) -> int:
    """Layers that have experts; each ``every``-th one after the first dense ones."""
    experts = architecture.experts
    if experts is None:
        return 0
    if architecture.kinds:
        return sum(kind.count for kind in architecture.kinds if kind.experts)
    return (architecture.layers - experts.first_dense) // experts.every


def attends(a: Architecture) -> bool:
    """True if layers of one kind have attention."""
    return a.heads > 0 and (a.state is None or a.state.beside)


def has_mixer(a: Architecture) -> bool:
    """True if layers of one kind have attention or a state."""
    return a.heads > 0 or a.state is not None


def crosses(a: Architecture) -> bool:
    """True if layers have a second attention, to an encoder's tokens or to a text's."""
    return a.encoder_layers > 0 or a.cross_tokens > 0


def attention_weights(model: Architecture) -> int:
    """Projections of one layer, or the mean of all kinds of layers."""
    kinds = attention_kinds(model)
    if len(kinds) > 1 and (model.kinds or model.state is not None):
        return round(sum(share * _attention_weights(one) for share, one in kinds))
    return _attention_weights(kinds[0][1])


def _attention_weights(model: Architecture) -> int:
    """Latent attention as in DeepSeek-V2 (2024), section 2.1; a state's as in ``StateMixer``."""
    total = 0 if model.state is None else state_weights(model.hidden, model.state)
    if not attends(model):
        return total
    if (latent := model.latent) is None:
        wide, keys = model.heads * model.head, model.kv_heads * model.head
        return total + model.hidden * (2 * wide + 2 * keys)
    query_width = model.heads * (model.head + latent.rope_head)
    if latent.query_rank is None:
        query = model.hidden * query_width
    else:
        query = latent.query_rank * (model.hidden + query_width)
    down = model.hidden * (latent.key_value_rank + latent.rope_head)
    up = latent.key_value_rank * model.heads * (model.head + latent.value_head)
    if model.indexer is not None:
        query_rank = latent.query_rank or model.hidden
        total += indexer_weights(model.hidden, query_rank, model.indexer)
    return total + query + down + up + model.heads * latent.value_head * model.hidden


def perceptron_weights(model: Architecture, ffn: int) -> int:
    """Weights of an MLP."""
    return (3 if model.gated else 2) * model.hidden * ffn


def dense_layer_weights(model: Architecture) -> int:
    """Weights of a layer without experts, norms and biases."""
    attentions = 2 if model.cross_tokens else 1
    each = attentions * attention_weights(model) + perceptron_weights(model, model.ffn)
    return model.streams * each


def token_weights(model: Architecture) -> float:
    """Weights of a layer without experts that one token passes."""
    read = model.hidden * 2 * model.kv_heads * model.head if model.cross_tokens else 0
    return dense_layer_weights(model) / model.streams - read


def expert_weights(model: Architecture, experts: Experts) -> int:
    """All routed experts of one layer."""
    return experts.count * expert_matrices(model, experts)


def expert_matrices(model: Architecture, experts: Experts) -> int:
    """Weights of one routed expert."""
    return perceptron_weights(replace(model, hidden=experts.width or model.hidden), experts.ffn)


def shared_weights(model: Architecture, experts: Experts) -> int:
    """Weights for every token in a layer with experts: attention, shared experts, router."""
    shared = experts.shared * perceptron_weights(model, experts.ffn)
    return attention_weights(model) + shared + router_weights(model, experts)


def layer_bodies(model: Architecture) -> Iterator[int]:
    """Weights of all layers of each kind but routed experts, norms and biases."""
    for one in uniform_parts(model):
        sparse = expert_layers(one)
        yield (all_layers(one) - sparse) * dense_layer_weights(one)
        if one.experts is not None:
            yield sparse * shared_weights(one, one.experts)


def token_body(model: Architecture) -> float:
    """Weights of all layers that one token passes, chosen experts included."""
    total = 0.0
    for one in uniform_parts(model):
        sparse = expert_layers(one)
        total += (all_layers(one) - sparse) * token_weights(one)
        if one.experts is not None:
            chosen = one.experts.per_token * expert_matrices(one, one.experts)
            total += sparse * (shared_weights(one, one.experts) + chosen)
    return total


def largest_matrix(model: Architecture) -> int:
    """Weights of the widest matrix of a layer."""
    ffn = model.experts.ffn if model.experts else model.ffn
    states = [kind.state.values for kind in model.kinds if kind.state]
    return model.hidden * max(ffn, model.ffn, model.heads * model.head, *states)


def all_layers(model: Architecture) -> int:
    """Layers of encoder and decoder. A decoder's cross attention counts as a third of one."""
    return model.layers + model.encoder_layers


def embedding_weights(model: Architecture) -> int:
    """Weights of one matrix of the vocabulary, and of learned positions."""
    return (model.vocabulary + model.positions) * model.hidden


def router_weights(a: Architecture, experts: Experts) -> int:
    """The router, and the projections to and from narrower tokens of experts."""
    return (experts.count + 2 * (experts.width or 0)) * a.hidden


def mlp_kinds(model: Architecture) -> Iterator[tuple[float, Experts | None]]:
    """Shares of the layers without experts and with them; empty ones are left out."""
    with_experts = expert_layers(model) / all_layers(model)
    for share, experts in ((1.0 - with_experts, None), (with_experts, model.experts)):
        if share:
            yield share, experts


@lru_cache(maxsize=256)
def state_heads(model: Architecture) -> int:
    """Heads or groups that tensor ranks share of all states; 0 without a state.

    Mamba 1 has a single group, whose values each rank computes.
    """
    states = [one.state for one in uniform_parts(model) if one.state is not None]
    return math.gcd(
        *(s.value_heads if s.form is StateForm.MAMBA1 else s.key_heads for s in states)
    )
