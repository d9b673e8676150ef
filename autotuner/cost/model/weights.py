"""Numbers of weights by kind, for traffic and updates. Not: their memory (layout_memory)."""

from __future__ import annotations

from autoconf_launch.core import Architecture, Experts


def attention_weights(model: Architecture) -> int:
    """Projections of one layer."""
    if (latent := model.latent) is None:
        wide, keys = model.heads * model.head, model.kv_heads * model.head
        return model.hidden * (2 * wide + 2 * keys)
    query_width = model.heads * (model.head + latent.rope_head)
    if latent.query_rank is None:
        query = model.hidden * query_width
    else:
        query = latent.query_rank * (model.hidden + query_width)
    down = model.hidden * (latent.key_value_rank + latent.rope_head)
    up = latent.key_value_rank * model.heads * (model.head + latent.value_head)
    return query + down + up + model.heads * latent.value_head * model.hidden


def perceptron_weights(model: Architecture, ffn: int) -> int:
    """One perceptron."""
    return (3 if model.gated else 2) * model.hidden * ffn


def dense_layer_weights(model: Architecture) -> int:
    """One layer without experts, norms and biases aside."""
    return attention_weights(model) + perceptron_weights(model, model.ffn)


def expert_weights(model: Architecture, experts: Experts) -> int:
    """All routed experts of one layer."""
    return experts.count * perceptron_weights(model, experts.ffn)


def shared_weights(model: Architecture, experts: Experts) -> int:
    """What every token passes in a layer with experts: attention, shared experts, router."""
    shared = experts.shared * perceptron_weights(model, experts.ffn)
    return attention_weights(model) + shared + experts.count * model.hidden


def expert_layers(model: Architecture) -> int:
    """Layers that have experts; each ``every``-th one after the first dense ones."""
    if (experts := model.experts) is None:
        return 0
    return (model.layers - experts.first_dense) // experts.every


def all_layers(model: Architecture) -> int:
    """Layers of encoder and decoder. A decoder's cross attention counts as a third of one."""
    return model.layers + model.encoder_layers


def embedding_weights(model: Architecture) -> int:
    """Of one matrix of the vocabulary, and learned positions."""
    return (model.vocabulary + model.positions) * model.hidden
