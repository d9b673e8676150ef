"""Matrix products of a layer, by their sizes.

Shapes: U = distinct inner layouts. Source: Narayanan et al. 2021 (arXiv:2104.04473), section 2.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, TypeAlias

import numpy as np

from autoconf_launch.core import Architecture, Experts

from ..space import Floats, Ints
from .indexers import indexer_products
from .kinds import attends
from .states import state_products

Numbers: TypeAlias = Floats | Ints | float
Product: TypeAlias = tuple[Numbers, Numbers, Numbers, Numbers]
"""``m``, ``n`` and ``k`` of a product (m x k) by (k x n), and how many there are."""


class SharingRanks(Protocol):
    """Ranks that share a layer's matrices and experts."""

    @property
    def tensor_U(self) -> Ints: ...

    @property
    def expert_U(self) -> Ints: ...


def attention_products(model: Architecture, inner: SharingRanks, tokens: Floats) -> list[Product]:
    """Projections of a layer's own tokens."""
    tp, hidden = inner.tensor_U, model.hidden
    found: list[Product] = []
    if model.state is not None:
        *into, (_, values) = state_products(hidden, model.state)
        found = [(tokens, n / tp, k, 1) for n, k in into]
        found.append((tokens, hidden, values / tp, 1))
    if not attends(model):
        return found
    if (latent := model.latent) is None:
        wide = model.heads * model.head / tp
        keys = np.maximum(model.kv_heads / tp, 1.0) * model.head
        return [*found, (tokens, wide + 2 * keys, hidden, 1), (tokens, hidden, wide, 1)]
    heads, rank = model.heads / tp, latent.query_rank
    query = heads * (model.head + latent.rope_head)
    up: list[tuple[Numbers, Numbers]] = [(query, hidden)]
    if rank is not None:
        up = [(rank, hidden), (query, rank)]
    if model.indexer is not None:
        up.extend(indexer_products(hidden, rank or hidden, model.indexer))
    pairs: list[tuple[Numbers, Numbers]] = [
        (latent.key_value_rank + latent.rope_head, hidden),
        *up,
        (heads * (model.head + latent.value_head), latent.key_value_rank),
        (hidden, heads * latent.value_head),
    ]
    return [*found, *((tokens, n, k, 1) for n, k in pairs)]


def mlp_products(
    model: Architecture, inner: SharingRanks, tokens: Floats, ffn: int
) -> list[Product]:
    """An MLP so wide; both matrices into a gated one are one product."""
    wide = ffn / inner.tensor_U
    first = wide * (2 if model.gated else 1)
    return [(tokens, first, model.hidden, 1), (tokens, model.hidden, wide, 1)]


def expert_products(
    model: Architecture, inner: SharingRanks, tokens: Floats, experts: Experts
) -> list[Product]:
    """Evenly routed tokens: each local expert sees ``tokens * chosen * ep / count`` of them.

    Of few tokens none may come to an expert, whose weights are then not read.
    """
    idle = (1.0 - experts.per_token / experts.count) ** (tokens * inner.expert_U)
    local = np.maximum(experts.count / inner.expert_U * (1.0 - idle), 1.0)
    routed = tokens * experts.per_token / local
    width = experts.width
    chosen = mlp_products(replace(model, hidden=width or model.hidden), inner, routed, experts.ffn)
    shared = experts.shared * experts.ffn
    ends = [(tokens, width, model.hidden, 1), (tokens, model.hidden, width, 1)] if width else []
    return [
        *((m, n, k, local) for m, n, k, _ in chosen),
        *ends,
        (tokens, experts.count, model.hidden, 1),
        *(mlp_products(model, inner, tokens, shared) if shared else ()),
    ]


def seen_keys(model: Architecture, sequence: int) -> int:
    """Keys that the last token of a sequence reads."""
    most = model.window or (model.indexer.top if model.indexer else sequence)
    return min(sequence, most)
