"""Micro-batches that differ by replica, for a layout whose replicas lie on different nodes.

Replica d takes ``b_d`` samples in all stages, and the sum of all is that of equal ones. The
smallest time within which all samples find a replica is found by bisection over tables of seconds,
as for layers; what is too many comes off the slowest replicas.

Shapes: S = stages, K = kinds, D = replicas, B = micro-batches from 1 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoconf_launch.core import Workload

from ..cost import LayoutColumns, memory_bytes
from ..space import Floats, Ints
from .kinds import MachineKind
from .makes import decoder_share, seconds_of_makes
from .places import StagePlaces
from .shares import only_on, replica_kinds


def share_samples(seconds_DB: Floats, most_D: Ints, total: int) -> Ints | None:
    """Samples of each replica, one at least; None where they have no room for all.

    Args:
        seconds_DB: of each replica with 1, 2, … samples, not falling.
        most_D: samples that it has room for.
        total: of all.
    """
    if most_D.min() < 1 or most_D.sum() < total or len(most_D) > total:
        return None
    allowed = np.arange(1, seconds_DB.shape[1] + 1) <= most_D[:, None]
    taus = np.unique(seconds_DB[allowed])
    low, high = 0, len(taus) - 1
    while low < high:
        middle = (low + high) // 2
        within = (allowed & (seconds_DB <= taus[middle])).sum(axis=1)
        if within.min() >= 1 and within.sum() >= total:
            high = middle
        else:
            low = middle + 1
    samples = (allowed & (seconds_DB <= taus[high])).sum(axis=1)
    for _ in range(int(samples.sum()) - total):
        now = np.where(samples > 1, seconds_DB[np.arange(len(samples)), samples - 1], -np.inf)
        samples[now.argmax()] -= 1
    return np.asarray(samples, np.int64)


def uneven_samples(
    columns: LayoutColumns,
    places: StagePlaces,
    order: Sequence[int],
    workload: Workload,
    kinds: Sequence[MachineKind],
    layers: Sequence[int],
) -> tuple[int, ...] | None:
    """The best micro-batch of each replica of one layout; None where equal ones are.

    Args:
        columns: the layout.
        places: where it lies.
        order: the kind of each node, in the order of ranks.
        workload: a model known by its shapes.
        kinds: of nodes.
        layers: of each stage.
    """
    here_DSK = replica_kinds(order, kinds, columns)
    replicas = len(here_DSK)
    total = replicas * int(columns.micro_batch_C[0])
    sizes = np.arange(1, total - replicas + 2)
    many = replace(columns.take(np.zeros(len(sizes), np.int64)), micro_batch_C=sizes)
    split = np.tile(np.array(layers), (len(sizes), 1))
    share = decoder_share(workload.architecture, split)
    peaks_BS = memory_bytes(many, workload, np.arange(len(layers))[:, None], split.T).total.T
    seconds_DB = np.zeros((replicas, len(sizes)))
    most_D = np.full(replicas, len(sizes))
    for kind, node in enumerate(kinds):
        rows = np.zeros(len(sizes), np.int64)
        alone = only_on(places, kind)
        times = seconds_of_makes(many, alone, rows, workload, kinds, share)
        one = times.busy_s(split)
        here_DS = here_DSK[:, :, kind]
        slowest = np.where(here_DS[:, None, :], one[None], 0.0).max(axis=2)
        seconds_DB = np.maximum(seconds_DB, slowest)
        fits = (~here_DS[:, None, :] | (peaks_BS <= node.memory_bytes)[None]).all(axis=2)
        most_D = np.minimum(most_D, fits.sum(axis=1))
    samples = share_samples(np.maximum.accumulate(seconds_DB, axis=1), most_D, total)
    if samples is None or len(set(samples.tolist())) == 1:
        return None
    return tuple(samples.tolist())
