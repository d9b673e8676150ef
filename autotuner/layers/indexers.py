"""Weights and operations of the ``Indexer`` of sparse attention.

Source: DeepSeek-AI 2025 (arXiv:2512.02556), section 2.1, and transformers' ``DeepseekV32Indexer``.
"""

from __future__ import annotations

from autoconf_launch.core import Indexer

SCORE_BYTES = 4.0
"""Size of a score, which is written once and read once to find the highest."""


def indexer_weights(hidden: int, query_rank: int, indexer: Indexer) -> int:
    """Matrices of a layer's indexer: queries from latents, one key, a weight for each head."""
    return sum(round(n * k) for n, k in indexer_products(hidden, query_rank, indexer))


def indexer_norms(indexer: Indexer) -> int:
    """Weights of the norm of keys, which has a bias."""
    return 2 * indexer.head


def indexer_products(
    hidden: int, query_rank: int, indexer: Indexer
) -> tuple[tuple[float, float], ...]:
    """Columns and depth of each product with tokens; tensor ranks repeat them."""
    queries = (indexer.heads * indexer.head, query_rank)
    return (queries, (indexer.head + indexer.heads, hidden))


def indexer_flops(indexer: Indexer) -> float:
    """Operations of a query for each key that it could read."""
    return 2.0 * indexer.heads * indexer.head
