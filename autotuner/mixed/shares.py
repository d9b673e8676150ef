"""Replicas with micro-batches of their own: what stages take, and how many samples each gets.

A replica computes its micro-batch on all stages, so that a stage takes as long as the slowest of
its ranks with the samples of that rank's replica.

Shapes: S = stages, K = kinds, D = replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autoconf_launch.core import Workload

from ..cost import LayoutColumns, memory_bytes
from ..space import Bools, Floats, Ints
from .kinds import MachineKind
from .makes import decoder_share, seconds_of_makes
from .places import StagePlaces
from .times import StageSeconds

_ROW = np.zeros(1, np.int64)


def replica_kinds(
    order: Sequence[int], kinds: Sequence[MachineKind], columns: LayoutColumns
) -> Bools:
    """Whether a replica has a rank on a kind in a stage: shape (replicas, stages, kinds).

    Args:
        order: the kind of each node, in the order of ranks.
        kinds: of nodes.
        columns: one layout.
    """
    slots = np.repeat(np.array(order), [kinds[kind].gpus for kind in order])
    data, stages = int(columns.data_C[0]), int(columns.pipeline_C[0])
    kind_SDR = slots.reshape(stages, data, -1)
    return np.asarray(
        (kind_SDR[..., None] == np.arange(len(kinds))).any(axis=2).transpose(1, 0, 2)
    )


def largest_shares(here_DSK: Bools, samples: Sequence[int]) -> Ints:
    """The largest micro-batch of each kind in each stage; 0 where a stage is not on a kind."""
    return np.asarray((here_DSK * np.array(samples)[:, None, None]).max(axis=0))


def with_micro_batch(columns: LayoutColumns, samples: int) -> LayoutColumns:
    """One layout with another micro-batch in as many steps."""
    return replace(columns, micro_batch_C=np.array([samples]))


def uneven_seconds(
    columns: LayoutColumns,
    places: StagePlaces,
    workload: Workload,
    kinds: Sequence[MachineKind],
    micro_SK: Ints,
    layers: Sequence[int],
) -> StageSeconds:
    """Seconds of one layout whose replicas have micro-batches of their own.

    Args:
        columns: one layout.
        places: where it lies.
        workload: a model known by its shapes.
        kinds: of nodes.
        micro_SK: the largest micro-batch of each kind in each stage.
        layers: of each stage.
    """
    share = decoder_share(workload.architecture, np.array([layers]))
    largest = with_micro_batch(columns, int(micro_SK.max()))
    whole = seconds_of_makes(largest, places, _ROW, workload, kinds, share)
    names = ("layer_s_RS", "fixed_s_RS", "layer_forward_s_RS", "fixed_forward_s_RS")
    slowest: dict[str, Any] = {name: np.zeros_like(whole.layer_s_RS) for name in names}
    for kind in range(len(kinds)):
        alone = only_on(places, kind)
        for samples in np.unique(micro_SK[:, kind][micro_SK[:, kind] > 0]).tolist():
            given = with_micro_batch(columns, samples)
            one = seconds_of_makes(given, alone, _ROW, workload, kinds, share)
            mine = micro_SK[:, kind] == samples
            for name, seconds in slowest.items():
                slowest[name] = np.where(mine, np.maximum(seconds, getattr(one, name)), seconds)
    return replace(whole, **slowest)


def only_on(places: StagePlaces, kind: int) -> StagePlaces:
    """Places as if stages had ranks on one kind alone; what they cross stays as it is."""
    mask = np.arange(places.ranks_OSK.shape[2]) == kind
    return replace(places, ranks_OSK=places.ranks_OSK * mask)


def uneven_peaks(
    columns: LayoutColumns, workload: Workload, layers: Sequence[int], micro_SK: Ints
) -> Floats:
    """Bytes of a rank on each kind in each stage; 0 where a stage is not on a kind."""
    peaks = np.zeros(micro_SK.shape)
    numbers, split = np.arange(len(layers))[:, None], np.array([layers]).T
    for samples in np.unique(micro_SK[micro_SK > 0]).tolist():
        one = with_micro_batch(columns, samples)
        total = memory_bytes(one, workload, numbers, split).total
        peaks = np.where(micro_SK == samples, total, peaks)
    return peaks
