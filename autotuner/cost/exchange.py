"""Seconds in which ranks of our runtime exchange weights and gradients. Not: other layouts.

Shapes: C = candidates. The bytes and passes are those of ``runtime/parallel``: DDP reduces buckets
once a step, ZeRO 1 then broadcasts each weight, FSDP2 gathers units of blocks and scatters their
gradients with each micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import ClusterSpec, ModelSpec

from ..table import CandidateTable, Floats, Ints
from .facts import TrainingFacts
from .model.physics import DEFAULT_PHYSICS

_BROADCASTS_OF_BLOCK = 12 / 4
"""ZeRO 1 broadcasts each of about 12 weights and biases of a transformer's block by itself. They
are under way together: a broadcast took a quarter of a reduction's latency where it was measured
(gloo, 2 ranks)."""
_BACKWARD = 2 / 3
"""Part of forward and backward beside which gradients can be reduced."""
_MIB = 1 << 20
_REDUCED_BYTES = 4
_BUCKET_MB = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What joins the ranks of one launch.

    Attributes:
        latency_s: of one collective, whatever its size.
        bytes_per_s: that a rank sends, one direction.
        overlaps: collectives of FSDP run beside kernels, as streams of a GPU do.
    """

    latency_s: float
    bytes_per_s: float
    overlaps: bool

    @staticmethod
    def of(cluster: ClusterSpec) -> Network | None:
        """The slowest link of a cluster; None where it is not known or a rank is alone."""
        nodes, ranks = cluster.nodes, len(cluster.devices)
        rates = [node.link_bytes_per_s for node in nodes if len(node.devices) > 1]
        if len(nodes) > 1:
            rates += [
                node.network_bytes_per_s and node.network_bytes_per_s / len(node.devices)
                for node in nodes
            ]
        known = [rate for rate in rates if rate]
        if ranks < 2 or not known or len(known) < len(rates):
            return None
        return Network(
            latency_s=max(node.link_latency_s or 0.0 for node in nodes),
            bytes_per_s=min(known),
            overlaps=not all(device.name.startswith("cpu") for device in cluster.devices),
        )


def exchange_s(
    table: CandidateTable,
    spec: ModelSpec,
    facts: TrainingFacts,
    network: Network,
    micro_batch_s_C: Floats,
) -> Floats:
    """Seconds of each row's step that no computing hides.

    Args:
        table: the candidates.
        spec: the model.
        facts: precision.
        network: between the ranks.
        micro_batch_s_C: forward and backward of one micro-batch.

    Source:
        A ring sends (N - 1) / N of a buffer for each pass over it (Thakur et al. 2005); which
        passes each stage makes: Rajbhandari et al. 2020, "ZeRO", section 7.
    """
    link = _Link(ranks_C=table["data_parallel"], network=network)
    gradients = spec.trainable_parameters * spec.parameter_bytes_each
    buckets = np.ceil(gradients / (table.numbers("bucket_cap_mb", _BUCKET_MB) * _MIB))
    reduced = link.seconds(buckets, 2 * gradients)
    reduced = np.maximum(0.0, reduced - _BACKWARD * micro_batch_s_C)
    broadcasts = _BROADCASTS_OF_BLOCK * sum(block.count for block in spec.blocks)
    broadcast = link.seconds(np.full(len(table), broadcasts), gradients)
    computing = micro_batch_s_C * table["accumulation"]
    sharded = (
        _exposed(seconds, computing, network) for seconds in _sharded(table, spec, facts, link)
    )
    exposed = np.choose(table["zero_stage"], (reduced, reduced + broadcast, *sharded))
    return np.asarray(np.where(link.ranks_C > 1, exposed, 0.0), np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Link:
    """The network as the ranks of each row see it."""

    ranks_C: Ints
    network: Network

    def seconds(self, collectives_C: Floats, passed_bytes: float) -> Floats:
        """So many collectives that pass over so many bytes in all."""
        sent = passed_bytes * (self.ranks_C - 1) / self.ranks_C
        network = self.network
        return np.asarray(collectives_C * network.latency_s + sent / network.bytes_per_s)


def _sharded(
    table: CandidateTable, spec: ModelSpec, facts: TrainingFacts, link: _Link
) -> tuple[Floats, Floats]:
    """What ZeRO 2 and 3 exchange: gradients with each micro-batch, weights once or twice in each.

    gloo scatters by a whole reduction, NCCL in one pass.
    """
    units, times = _units(table, spec), table["accumulation"]
    passes = 1 if link.network.overlaps else 2
    scattered = link.seconds(units, passes * spec.trainable_parameters * _REDUCED_BYTES)
    gathered = link.seconds(units, spec.parameters * facts.compute_bytes)
    return scattered * times + gathered, (scattered + 2 * gathered) * times


def _exposed(exchange: Floats, computing: Floats, network: Network) -> Floats:
    """What is left where collectives run beside kernels, which they slow in turn."""
    if not network.overlaps:
        return exchange
    hidden = np.minimum(exchange, DEFAULT_PHYSICS.shard_overlap * computing)
    return np.asarray(exchange - hidden + DEFAULT_PHYSICS.contention * hidden)


def _units(table: CandidateTable, spec: ModelSpec) -> Floats:
    """Units of blocks that FSDP gathers, and the rest of the model as one more."""
    repeated = sum(block.count for block in spec.blocks if block.count > 1)
    return np.asarray(np.ceil(repeated / table.numbers("blocks_per_unit", 1.0)) + 1.0)
