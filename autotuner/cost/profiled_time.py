"""Seconds in which ranks of our runtime exchange weights and gradients. Not: other layouts.

Shapes: C = candidates. The bytes and passes are those of ``runtime/parallel``: DDP reduces buckets
once a step, ZeRO 1 then broadcasts each weight, FSDP2 gathers units of blocks and scatters their
gradients with each micro-batch.

Shapes: C = candidates.

A matrix product is known here by its FLOPs alone, so it is taken for one of equal sides, or for
as long as its bytes need, whichever is longer. Shapes: O = operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from autoconf_launch.core import ClusterSpec, MicroBatchTiming, ModelSpec, OperationCost, Recompute

from ..measurement import PRIOR, t_quantile
from ..space import CandidateTable, Floats, Ints
from .hardware import DEFAULT_PHYSICS
from .layer import Kernels
from .memory import covered
from .numeric import fit_line
from .training import TrainingFacts

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
    gathered = link.seconds(units, spec.parameters * facts.precision.value_bytes)
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


STEP_BAND = 0.3
"""Relative error to expect of a step's seconds; a guess until predictions are calibrated."""

_WORK = {Recompute.NONE: 1.0, Recompute.SELECTIVE: 1.05, Recompute.FULL: 4 / 3}
"""Work of forward and backward over that without recomputation: a full one repeats the forward
pass, a third of it (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")."""

_CALMER = math.exp(-t_quantile(0.98, PRIOR.between_freedom) * math.sqrt(2.0) * PRIOR.between)
"""What one launch in fifty takes less than, over another one minutes before."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepSeconds:
    """Seconds that add up to one step; NaN throughout where no formula covers the row.

    Attributes:
        samples_s_C: what each sample costs, at the rate that large micro-batches reach.
        launch_s_C: what each micro-batch costs whatever its size.
        recompute_s_C: forward passes that are made again.
        communication_s_C: between ranks, where nothing hides it; 0 where links are not known.
        update_s_C: the optimizer's.
    """

    samples_s_C: Floats
    launch_s_C: Floats
    recompute_s_C: Floats
    communication_s_C: Floats
    update_s_C: Floats

    @property
    def step_s_C(self) -> Floats:
        """Sum of all parts."""
        return np.asarray(np.sum([part for _, part in self.parts()], axis=0), np.float64)

    def parts(self) -> tuple[tuple[str, Floats], ...]:
        """Name (``samples``, ``launch``, …) and seconds of each part, in order."""
        return tuple(
            (part.name.removesuffix("_s_C"), getattr(self, part.name)) for part in fields(self)
        )


def step_seconds(
    table: CandidateTable, spec: ModelSpec, facts: TrainingFacts, network: Network | None = None
) -> StepSeconds:
    """Seconds for each row; NaN without timings or where no formula covers the row.

    Args:
        table: the candidates.
        spec: the model with its timings.
        facts: precision.
        network: between ranks; None leaves communication out.
    """
    timed = [(t.micro_batch, t.forward_backward_s) for t in _timed(spec)]
    if not timed:
        unknown = np.full(len(table), np.nan)
        return StepSeconds(**{part.name: unknown for part in fields(StepSeconds)})
    line = fit_line(timed)
    known = np.where(covered(table), 0.0, np.nan)
    work = _work(table)
    times, micro = table["accumulation"], table["micro_batch"]
    micro_batch_s = line.at(micro)
    update_s = (spec.optimizer_step_s or 0.0) / np.where(
        table["zero_stage"] > 0, table["data_parallel"], 1
    )
    communication = (
        exchange_s(table, spec, facts, network, micro_batch_s * work)
        if network
        else np.zeros(len(table))
    )
    return StepSeconds(
        samples_s_C=known + times * micro * line.each,
        launch_s_C=known + times * line.fixed,
        recompute_s_C=known + times * micro_batch_s * (work - 1.0),
        communication_s_C=known + communication,
        update_s_C=known + update_s,
    )


def least_profiled_step_s(table: CandidateTable, spec: ModelSpec) -> Floats:
    """What no step of a row comes below by the profile: its samples alone, no launch, no exchange.

    A sample costs no less than a larger micro-batch took at the fastest beyond a smaller one, less
    what a launch as far away in time may be slower without cause. NaN where nothing was timed or
    no formula covers the row.
    """
    timed = sorted(_timed(spec), key=lambda timing: timing.micro_batch)
    if not timed:
        return np.full(len(table), np.nan)
    known = np.where(covered(table), 0.0, np.nan)
    samples = table["accumulation"] * table["micro_batch"]
    return np.asarray(known + samples * _work(table) * _least_sample_s(timed) * _CALMER)


def _least_sample_s(timed: Sequence[MicroBatchTiming]) -> float:
    """Least seconds of a sample; the timings are in the order of their micro-batches."""
    small, large = timed[0], timed[-1]
    fastest_s = large.fastest_s or large.forward_backward_s
    if small is large:
        return fastest_s / large.micro_batch
    beyond_s = fastest_s - small.forward_backward_s
    line = fit_line([(t.micro_batch, t.forward_backward_s) for t in timed])
    return max(0.0, min(line.each, beyond_s / (large.micro_batch - small.micro_batch)))


def _timed(spec: ModelSpec) -> tuple[MicroBatchTiming, ...]:
    return tuple(timing for timing in spec.timings if timing.forward_backward_s)


def _work(table: CandidateTable) -> Floats:
    work = np.empty(len(table))
    for kind, factor in _WORK.items():
        work[table.is_value("recompute", kind)] = factor
    return work


EAGER_BAND = 0.5
"""Relative error to expect of a step's seconds; a guess: no table has such models."""
_OPERATIONS_OF_LAYER = 130
"""Operations of a layer's forward and backward pass in a trace of transformers' Llama; the host's
time for a layer is spread over them."""
_MOMENTS = 2
"""An update reads and writes each value of its state, and the weight; it reads the gradient."""


def forward_backward_s(
    operations: Sequence[OperationCost], kernels: Kernels, *, share: float
) -> float:
    """Seconds of one micro-batch; host and device run side by side.

    Args:
        operations: of forward and backward of the micro-batch that was traced.
        kernels: of the GPU in the precision asked for.
        share: samples over those that were traced.
    """
    if not operations:
        return float("nan")
    flops_O = np.array([one.flops for one in operations]) * share
    moved_O = np.array([float(one.moved_bytes) for one in operations]) * share
    count_O = np.array([float(one.count) for one in operations])
    side_O = np.cbrt(np.maximum(flops_O, 2.0) / 2.0)
    product_s_O = np.where(flops_O > 0, kernels.product_s(side_O, side_O, side_O), 0.0)
    device_s = float(count_O @ np.maximum(product_s_O, kernels.traffic_s(moved_O)))
    physics = kernels.physics
    each_s = (physics.layer_forward_s + physics.layer_backward_s) / _OPERATIONS_OF_LAYER
    host_s = float(count_O.sum()) * each_s
    power = physics.host_sharpness
    return float((device_s**power + host_s**power) ** (1.0 / power))


def profiled_update_s(weight_bytes: float, states: int, kernels: Kernels) -> float:
    """Seconds of the optimizer's step on weights of so many bytes."""
    passes = _MOMENTS * (1 + states) + 1
    return weight_bytes * passes / kernels.bytes_per_s
