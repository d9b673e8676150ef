"""Kinds of layers: their matrices, and the weights and operations of states and indexers."""

from .indexers import (
    SCORE_BYTES,
    indexer_flops,
    indexer_norms,
    indexer_products,
    indexer_weights,
)
from .kinds import (
    all_layers,
    attends,
    attention_kinds,
    attention_weights,
    crosses,
    dense_layer_weights,
    embedding_weights,
    expert_layers,
    expert_matrices,
    expert_weights,
    has_mixer,
    largest_matrix,
    layer_bodies,
    mlp_kinds,
    perceptron_weights,
    router_weights,
    shared_weights,
    state_heads,
    token_body,
    token_weights,
    uniform_parts,
)
from .products import (
    Numbers,
    Product,
    attention_products,
    expert_products,
    mlp_products,
    seen_keys,
)
from .states import (
    backward_passes,
    kept_values,
    runs_on_vectors,
    state_flops,
    state_products,
    state_traffic_bytes,
    state_weights,
)
