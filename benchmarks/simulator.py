"""Landscapes of eight knobs from a simulated cluster. Not: which tuner is run against them.

A step of a transformer, part by part, with what makes knobs depend on each other: whole waves of
tiles on the multiprocessors, links that are slow beyond a node, gradients that are reduced once
for each micro-batch from ZeRO 2 on, communication that hides behind the backward pass only if
buckets are small, loader workers that either keep up or do not, and an allocator that starts over
near the limit. Hardware and model are drawn by a seed. Predictions know
the parts but not these steps, and their constants are off by 15 %.
These formulas and constants were written before any tuner had seen them and are not fitted to one.
Shapes: C = candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from tuner_walk import Landscape

from autoconf_launch.autotuner.space.table import CandidateTable, Floats, Ints, PredictionTable
from autoconf_launch.core import Candidate, Layout, Recompute

Parts: TypeAlias = dict[str, Floats]

GPUS, GPUS_PER_NODE, BATCH, SEQUENCE = 16, 8, 128, 1024
SIZES = (200, 500, 1000, 2000)
"""Candidates of a landscape; the whole space has some thousands."""
MODES = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
BUCKETS, WORKERS = (2_000_000, 20_000_000, 200_000_000), (0, 2, 8)
_TILE = 128
_PEAK_SHARE = 0.7
_OFF = 0.15
"""Standard deviation of the logarithm of each of the planner's constants."""
_OWN = 0.01
"""Standard deviation of the random part of each candidate's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A draw of model and hardware; rates are per second and GPU."""

    layers: int
    hidden: int
    flops: float
    multiprocessors: int
    near_bytes: float
    far_bytes: float
    message_s: float
    loaded_samples: float
    memory_bytes: float
    contention: float

    @property
    def parameters(self) -> float:
        """Weights of all layers."""
        return 12.0 * self.layers * self.hidden**2


def draw_cluster(seed: int) -> Cluster:
    """A cluster by its seed."""
    draw = np.random.default_rng(seed)
    layers, hidden = int(draw.choice((24, 32, 48))), int(draw.choice((1536, 2048, 2560)))
    return Cluster(
        layers=layers,
        hidden=hidden,
        flops=float(draw.choice((60e12, 120e12, 300e12))),
        multiprocessors=int(draw.choice((80, 108, 132))),
        near_bytes=float(draw.choice((20e9, 100e9, 250e9))),
        far_bytes=float(draw.choice((3e9, 10e9, 25e9))),
        message_s=float(draw.uniform(20e-6, 200e-6)),
        loaded_samples=float(draw.uniform(2.0, 20.0)),
        memory_bytes=float(draw.choice((24e9, 40e9, 80e9))),
        contention=float(draw.uniform(0.0, 0.15)),
    )


def simulate(seed: int, size: int, *, with_predictions: bool) -> Landscape:
    """A landscape of ``size`` random candidates on the cluster of a seed."""
    draw = np.random.default_rng((seed, size))
    every = list(_candidates())
    chosen = sorted(draw.choice(len(every), size, replace=False).tolist())
    table = CandidateTable.from_candidates([every[i] for i in chosen])
    cluster = draw_cluster(seed)
    peak_bytes_C = _memory(table, cluster)
    step_s_C = _measure(table, cluster, peak_bytes_C) * np.exp(draw.normal(0.0, _OWN, size))
    step_s_C[peak_bytes_C > cluster.memory_bytes] = np.nan
    told = "predicted" if with_predictions else "nothing predicted"
    return Landscape(
        name=f"simulated {seed}, {told}",
        table=table,
        step_s_C=step_s_C,
        predictions=_predict(table, cluster, draw) if with_predictions else None,
    )


def _candidates() -> Iterator[Candidate]:
    axes = ((1, 2, 4, 8), (1, 2, 4), (1, 2, 4, 8, 16), (0, 1, 2, 3))
    for tensor, pipeline, micro, zero in product(*axes):
        data = GPUS // (tensor * pipeline)
        if data * micro * pipeline > BATCH or not data:
            continue
        for mode, bucket, overlap, workers in product(MODES, BUCKETS, (False, True), WORKERS):
            layout = Layout(
                data_parallel=data,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                micro_batch=micro,
                accumulation=BATCH // (data * micro),
                zero_stage=zero,
                recompute=mode,
            )
            extras = (
                ("reduce_bucket_size", bucket),
                ("overlap_comm", overlap),
                ("dataloader_num_workers", workers),
            )
            yield Candidate(layout=layout, extras=extras)


def _measure(table: CandidateTable, of: Cluster, peak_bytes_C: Floats) -> Floats:
    tensor_C, micro_C = table["tensor_parallel"], table["micro_batch"]
    tiles_C = _up(micro_C * SEQUENCE / _TILE) * _up(4 * of.hidden / tensor_C / _TILE)
    filled_C = tiles_C / (_up(tiles_C / of.multiprocessors) * of.multiprocessors)
    compute_C = _compute(table, of) / (filled_C * of.hidden / (of.hidden + 256 * tensor_C))
    retried_C = np.where(peak_bytes_C > 0.92 * of.memory_bytes, 1.15, 1.0)
    inside_C = np.where(tensor_C * table["pipeline_parallel"] <= 1, 1, tensor_C)
    far_C = table["data_parallel"] * inside_C > GPUS_PER_NODE
    rate_C = np.where(far_C, of.far_bytes, of.near_bytes)
    exchanged_C = _exchanged_bytes(table, of) / rate_C + _messages(table, of) * of.message_s
    bucket_C = table.numbers("reduce_bucket_size", 0.0)
    mine_C = of.parameters / (tensor_C * table["pipeline_parallel"])
    overlap_C = table.numbers("overlap_comm", 0.0) * (1.0 - np.minimum(bucket_C / mine_C, 1.0))
    compute_C = compute_C * (1.0 + of.contention * (overlap_C > 0) * (table["zero_stage"] > 0))
    hidden_C = np.minimum(exchanged_C * overlap_C, 0.6 * compute_C)
    work_C = (compute_C + exchanged_C - hidden_C + _tensor(table, of)) * retried_C
    return _with_loading(table, of, work_C * _bubble(table))


def _with_loading(table: CandidateTable, of: Cluster, work_C: Floats) -> Floats:
    workers_C = table.numbers("dataloader_num_workers", 0.0)
    load_s_C = BATCH / table["data_parallel"] / of.loaded_samples / 10.0
    beside_C = np.maximum(work_C, load_s_C / np.maximum(workers_C, 1.0))
    return np.where(workers_C == 0, work_C + load_s_C, beside_C + 0.002 * workers_C)


def _predict(table: CandidateTable, of: Cluster, draw: np.random.Generator) -> PredictionTable:
    """Smooth, as if every link were near and every transfer hidden half."""
    off = np.exp(draw.normal(0.0, _OFF, 4))
    bubble_C = _bubble(table)
    parts = (
        ("compute", _compute(table, of) / 0.8 * off[0] * bubble_C),
        ("exchange", 0.5 * _exchanged_bytes(table, of) / of.near_bytes * off[1] * bubble_C),
        ("tensor", _tensor(table, of) * off[2] * bubble_C),
    )
    return PredictionTable(
        peak_bytes_C=_memory(table, of) * off[3] ** 0.5,
        step_s_C=np.sum([seconds for _, seconds in parts], axis=0),
        band=0.3,
        how="a planner that knows no steps",
        parts=parts,
        limit_bytes=of.memory_bytes,
    )


def _compute(table: CandidateTable, of: Cluster) -> Floats:
    """Seconds of forward and backward passes at full speed."""
    again_C = np.array([1.0, 1.04, 4 / 3])[_modes(table)]
    return np.asarray(
        6.0 * of.parameters * BATCH * SEQUENCE / GPUS / of.flops / _PEAK_SHARE * again_C
    )


def _modes(table: CandidateTable) -> Ints:
    known = dict(table.columns)["recompute"].categories or ()
    return np.array([MODES.index(mode) for mode in known])[table["recompute"]]  # type: ignore[arg-type]


def _bubble(table: CandidateTable) -> Floats:
    stages_C, micro_batches_C = table["pipeline_parallel"], table["accumulation"]
    return np.asarray(1.0 + (stages_C - 1) / micro_batches_C)


def _times(table: CandidateTable) -> Floats:
    """Number of gradient reductions in a step."""
    return np.where(table["zero_stage"] >= 2, table["accumulation"], 1).astype(float)


def _exchanged_bytes(table: CandidateTable, of: Cluster) -> Floats:
    """Over the data-parallel group, of one rank."""
    ranks_C, zero_C = table["data_parallel"], table["zero_stage"]
    mine_C = 2.0 * of.parameters / (table["tensor_parallel"] * table["pipeline_parallel"])
    gathered_C = np.where(zero_C == 3, 2.0 * table["accumulation"], 1.0)
    return np.asarray((ranks_C - 1) / ranks_C * mine_C * (_times(table) + gathered_C))


def _messages(table: CandidateTable, of: Cluster) -> Floats:
    mine_C = of.parameters / (table["tensor_parallel"] * table["pipeline_parallel"])
    buckets_C = _up(mine_C / table.numbers("reduce_bucket_size", 1.0)) * _times(table)
    layers_C = of.layers / table["pipeline_parallel"] * table["accumulation"]
    gathers_C = np.where(table["zero_stage"] == 3, 2.0 * layers_C, 0.0)
    return np.asarray((buckets_C + gathers_C) * (table["data_parallel"] > 1))


def _tensor(table: CandidateTable, of: Cluster) -> Floats:
    """Seconds of all-reduces of activations, which stay in a node."""
    ranks_C = table["tensor_parallel"]
    samples_C = BATCH / table["data_parallel"]
    layers_C = of.layers / table["pipeline_parallel"]
    moved_C = 4.0 * layers_C * samples_C * SEQUENCE * of.hidden * 2.0
    return np.asarray(2.0 * (ranks_C - 1) / ranks_C * moved_C / of.near_bytes)


def _memory(table: CandidateTable, of: Cluster) -> Floats:
    """Bytes of the fullest rank."""
    zero_C, ranks_C = table["zero_stage"], table["data_parallel"]
    split_C = table["tensor_parallel"] * table["pipeline_parallel"]
    weights_C = np.where(zero_C >= 3, 2.0 / ranks_C, 2.0)
    gradients_C = np.where(zero_C >= 2, 2.0 / ranks_C, 2.0)
    states_C = np.where(zero_C >= 1, 12.0 / ranks_C, 12.0)
    kept_C = np.array([34.0, 20.0, 2.0])[_modes(table)]
    alive_C = np.minimum(table["accumulation"], table["pipeline_parallel"])
    stored_C = kept_C * SEQUENCE * of.hidden * table["micro_batch"] * alive_C
    stored_C = stored_C * of.layers / split_C
    model_C = of.parameters / split_C * (weights_C + gradients_C + states_C)
    return np.asarray(model_C + stored_C + 4.0 * table.numbers("reduce_bucket_size", 0.0) + 1.5e9)


def _up(amount_C: Floats) -> Floats:
    return np.ceil(amount_C)
