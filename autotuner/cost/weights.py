"""Weights of a transformer: counted exactly for memory, matrices alone for products.

Not: where they lie, nor their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoconf_launch.core import Architecture, Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """Weights of one layer. Whatever ``split`` over tensor-parallel ranks is not is whole there.

    Attributes:
        attention: its matrices and their biases, cross attention included.
        mlp: the dense MLP, or the experts that see every token.
        experts: all routed experts, split over expert-parallel ranks too.
        whole: norms, biases of outputs, routers: on every tensor-parallel rank.
    """

    attention: int
    mlp: int
    experts: int
    whole: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.attention + self.mlp + self.experts + self.whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """Weights of a model by place: the layers in order are encoder, dense, then ``repeated``.

    Attributes:
        embedding: token and position tables and what stands beside them; first stage.
        head: the output matrix and last norm. A tied matrix is counted in ``embedding`` alone.
        encoder: one encoder layer, of ``encoder_layers``.
        dense: one leading layer without experts, of ``dense_layers``.
        repeated: one of the other layers; for models with experts in every n-th layer, the mean.
    """

    embedding: int
    head: int
    tied_head: int
    encoder: LayerWeights
    encoder_layers: int
    dense: LayerWeights
    dense_layers: int
    repeated: LayerWeights
    repeated_layers: int
    spare: int = 0

    @property
    def total(self) -> int:
        """All weights of the model."""
        return (
            self.embedding
            + self.head
            + self.encoder_layers * self.encoder.total
            + self.dense_layers * self.dense.total
            + self.repeated_layers * self.repeated.total
            + self.spare
        )


def parameters(architecture: Architecture) -> int:
    """All weights, as the published implementation counts them."""
    return model_weights(architecture).total


def active_parameters(architecture: Architecture) -> int:
    """Weights that one token passes: of the routed experts only those chosen for it."""
    total, experts = parameters(architecture), architecture.experts
    if experts is None:
        return total
    idle = experts.count - experts.per_token
    return total - expert_layers(architecture) * idle * _mlp(architecture, experts.ffn)


def expert_layers(architecture: Architecture) -> int:
    """Layers that have experts; each ``every``-th one after the first dense ones."""
    experts = architecture.experts
    if experts is None:
        return 0
    return (architecture.layers - experts.first_dense) // experts.every


def model_weights(architecture: Architecture) -> ModelWeights:
    """Weights by place."""
    a = architecture
    table = a.vocabulary * a.hidden
    sparse, plain = _layer(a, sparse=True), _layer(a, sparse=False)
    dense = a.experts.first_dense if a.experts else 0
    repeated = a.layers - dense
    mean, spare = _mean(sparse, plain, repeated, expert_layers(a)) if a.experts else (plain, 0)
    last_norms = (2 if a.encoder_layers else 1) * _norm(a) if a.causal else 0
    return ModelWeights(
        embedding=table + a.positions * a.hidden + a.other_parameters,
        head=(0 if a.tied_embeddings else table) + last_norms,
        tied_head=table if a.tied_embeddings else 0,
        encoder=_layer(a, sparse=False, crossed=False),
        encoder_layers=a.encoder_layers,
        dense=plain,
        dense_layers=dense,
        repeated=mean,
        repeated_layers=repeated,
        spare=spare,
    )


def _layer(a: Architecture, *, sparse: bool, crossed: bool = True) -> LayerWeights:
    cross = bool(a.encoder_layers) and crossed
    attentions = 2 if cross else 1
    experts = a.experts if sparse else None
    shared = experts.shared * _mlp(a, experts.ffn) if experts else _mlp(a, a.ffn)
    routed = experts.count * _mlp(a, experts.ffn) if experts else 0
    router = experts.count * a.hidden if experts else 0
    biases = (attentions + 1) * a.hidden if a.biases and not experts else 0
    return LayerWeights(
        attention=attentions * _attention(a),
        mlp=shared,
        experts=routed,
        whole=(attentions + 1) * _norm(a) + router + biases + a.other_layer_parameters,
    )


def _attention(a: Architecture) -> int:
    """Projections and the biases that are split with them; norms on both latents."""
    if (latent := a.latent) is not None:
        return attention_weights(a) + (latent.query_rank or 0) + latent.key_value_rank
    return attention_weights(a) + ((a.heads + 2 * a.kv_heads) * a.head if a.biases else 0)


def _mlp(a: Architecture, ffn: int) -> int:
    """Matrices, and the biases that are split with them."""
    return perceptron_weights(a, ffn) + ((2 if a.gated else 1) * ffn if a.biases else 0)


def _norm(a: Architecture) -> int:
    """LayerNorm has a weight and a bias, RMSNorm a weight alone."""
    return (2 if a.biases else 1) * a.hidden


def _mean(
    sparse: LayerWeights, plain: LayerWeights, layers: int, with_experts: int
) -> tuple[LayerWeights, int]:
    """The mean of layers with and without experts, and what rounding it loses in all."""

    def mean(one: int, other: int) -> int:
        return (one * with_experts + other * (layers - with_experts)) // layers

    both = LayerWeights(
        attention=mean(sparse.attention, plain.attention),
        mlp=mean(sparse.mlp, plain.mlp),
        experts=mean(sparse.experts, plain.experts),
        whole=mean(sparse.whole, plain.whole),
    )
    exact = sparse.total * with_experts + plain.total * (layers - with_experts)
    return both, exact - layers * both.total


def attention_weights(model: Architecture) -> int:
    """Projections of one layer; latent attention as in DeepSeek-V2 (2024), section 2.1."""
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
    """One MLP."""
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


def largest_matrix(model: Architecture) -> int:
    """Weights of the widest matrix of a layer."""
    ffn = model.experts.ffn if model.experts else model.ffn
    return model.hidden * max(ffn, model.ffn, model.heads * model.head)


def layer_matrices(weights: ModelWeights) -> ModelWeights:
    """The matrices of the layers alone: no embedding, head or norm."""
    encoder, dense, repeated = (
        replace(layer, whole=0) for layer in (weights.encoder, weights.dense, weights.repeated)
    )
    return replace(
        weights,
        embedding=0,
        head=0,
        tied_head=0,
        encoder=encoder,
        dense=dense,
        repeated=repeated,
        spare=0,
    )


def all_layers(model: Architecture) -> int:
    """Layers of encoder and decoder. A decoder's cross attention counts as a third of one."""
    return model.layers + model.encoder_layers


def embedding_weights(model: Architecture) -> int:
    """Weights of one matrix of the vocabulary, and of learned positions."""
    return (model.vocabulary + model.positions) * model.hidden
