"""Layers of two makes: of an encoder, and of a decoder that attends to it, too.

A pipeline is cut between them at the border of two stages, as Megatron-LM does; all such cuts are
tried. A given layout may have both makes on a stage.

Shapes: R = rows, S = stages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoconf_launch.core import Architecture, Workload

from ..cost import LayoutColumns, stacks
from ..space import Bools, Floats, Ints
from .kinds import MachineKind
from .places import StagePlaces
from .times import StageSeconds, stage_seconds


def decoder_share(model: Architecture, layers_RS: Ints) -> Floats:
    """Part of the layers of each stage that is the decoder's, which come last."""
    before = np.cumsum(layers_RS, axis=1) - layers_RS
    encoder = np.clip(model.encoder_layers - before, 0, layers_RS)
    return np.asarray(1.0 - encoder / np.maximum(layers_RS, 1))


def seconds_of_makes(
    columns: LayoutColumns,
    places: StagePlaces,
    place_R: Ints,
    workload: Workload,
    kinds: Sequence[MachineKind],
    share_RS: Floats,
) -> StageSeconds:
    """Lines as of ``stage_seconds``; ``share_RS`` of a stage's layers are a decoder's, if any."""
    if not workload.architecture.encoder_layers:
        return stage_seconds(columns, places, place_R, workload, kinds)
    encoder, decoder = _both_makes(columns, places, place_R, workload, kinds)
    return encoder.blend(decoder, share_RS)


def _both_makes(
    columns: LayoutColumns,
    places: StagePlaces,
    place_R: Ints,
    workload: Workload,
    kinds: Sequence[MachineKind],
) -> tuple[StageSeconds, StageSeconds]:
    encoder, decoder = stacks(workload)
    return (
        stage_seconds(columns, places, place_R, workload, kinds, encoder),
        stage_seconds(columns, places, place_R, workload, kinds, decoder),
    )


def seconds_of_cuts(
    columns: LayoutColumns,
    places: StagePlaces,
    place_R: Ints,
    workload: Workload,
    kinds: Sequence[MachineKind],
) -> tuple[StageSeconds, Ints, Bools]:
    """Lines of each row once for each border between encoder and decoder.

    Returns:
        The lines, the number of each one's row, and which of its stages are the decoder's.
    """
    encoder, decoder = _both_makes(columns, places, place_R, workload, kinds)
    stages = encoder.layer_s_RS.shape[1]
    cut = np.tile(np.arange(1, stages), len(columns))
    numbers = np.repeat(np.arange(len(columns)), stages - 1)
    late = np.arange(stages) >= cut[:, None]
    times = encoder.take(numbers).blend(decoder.take(numbers), late.astype(np.float64))
    return times, numbers, late
