"""Seconds of a step on nodes that differ, stage by stage.

A stage goes at the pace of its slowest rank. A layer is worked out once for each kind of node and
inner layout, and gathered from there. What crosses a network is priced on the cards that it really
crosses (``places``). Gradients of a stage are summed when its last backward pass has ended, which
for late stages is before the first stage's: only time beyond that makes the step longer.
A pipeline of two makes of layers, an encoder's and a decoder's, is cut between them at the border
of two stages, as in Megatron-LM; all such cuts are tried. A given layout may have both makes on a
stage.

Shapes: R = rows, S = stages, B = borders between them, K = kinds, U = inner layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from autoconf_launch.core import Architecture, Workload

from ..cost import (
    ALL_REDUCE,
    GATHER,
    GATHERED_MATRICES,
    MOST_HIDDEN,
    InnerLayouts,
    InnerTimes,
    LayoutColumns,
    Physics,
    Roofline,
    Stack,
    beyond_backward_s,
    distinct,
    exposed_s,
    frozen_passes_s,
    has_flat_gathers,
    inner_times,
    link_s,
    overlaps_reduction,
    rank_weights,
    reduction_passes,
    ring_share,
    stacks,
    trained_share,
    update_traffic_bytes,
)
from ..layers import (
    all_layers,
    embedding_weights,
)
from ..space import Bools, Floats, Ints
from .kinds import MachineKind, with_measured
from .places import StagePlaces

_FORWARD = 1.0 / 3.0
"""Part of a layer's passes that is the forward one: a backward pass has two products for each."""
_OF_ALL_ROWS = frozenset({"overlaps", "physics"})
_SECONDS: tuple[Callable[[InnerTimes], Floats], ...] = (
    lambda times: times.first_s_U,
    lambda times: times.last_s_U,
    lambda times: times.layer_s_U,
    lambda times: _FORWARD * (times.layer_s_U - times.again_s_U),
    lambda times: times.busy_s_U + times.again_s_U,
)
"""Embedding, head, a layer, its forward pass, and what of it computes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageSeconds:
    """Times of the stages of rows, as lines over their layers.

    Attributes:
        layer_s_RS, fixed_s_RS: forward and backward of one micro-batch, for each layer and
            besides; exposed sends are in the fixed part.
        layer_forward_s_RS, fixed_forward_s_RS: their forward part.
        weights_RS: weights of a rank on a stage besides layers: embedding and head.
        layer_weights_R: weights of a rank for each layer.
        reduced_s_RS: sum of a weight's gradient over replicas, and again for ZeRO's passes.
        reduce_start_s_RS: the part of that which is independent of the weights.
        update_s_RS: update of a weight.
        fill_s_R: sends of the first micro-batch on its way, beyond those in the stages' own times.
        cards_s_R: a step's sends through the busiest card, a lower bound of the step.
        after_s_R: time after all stages have ended: the sum of tied embeddings.
        host_s_R: of a step on the host, and in frozen models that each rank run alongside.
        count_R: micro-batches of a step.
        overlaps: gradients are summed during the backward pass.
    """

    layer_s_RS: Floats
    fixed_s_RS: Floats
    layer_forward_s_RS: Floats
    fixed_forward_s_RS: Floats
    weights_RS: Floats
    layer_weights_R: Floats
    reduced_s_RS: Floats
    reduce_start_s_RS: Floats
    update_s_RS: Floats
    fill_s_R: Floats
    cards_s_R: Floats
    after_s_R: Floats
    host_s_R: Floats
    count_R: Ints | Floats
    overlaps: bool
    physics: Physics

    def take(self, rows: Ints) -> StageSeconds:
        """Some rows by number."""
        names = [one.name for one in fields(self) if one.name not in _OF_ALL_ROWS]
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def blend(self, others: StageSeconds, share_RS: Floats) -> StageSeconds:
        """With layers of which a share is as the others have them."""

        def mean(own: Floats, other: Floats) -> Floats:
            return np.asarray(own + share_RS * (other - own))

        return replace(
            self,
            layer_s_RS=mean(self.layer_s_RS, others.layer_s_RS),
            layer_forward_s_RS=mean(self.layer_forward_s_RS, others.layer_forward_s_RS),
        )

    def busy_s(self, layers_RS: Ints) -> Floats:
        """Both passes of a micro-batch on each stage."""
        return np.asarray(self.fixed_s_RS + self.layer_s_RS * layers_RS)

    def step_s(self, layers_RS: Ints) -> Floats:
        """Seconds of a step with ``layers_RS`` layers on each stage."""
        running, rest = self.parts_s(layers_RS)
        return np.asarray(running + rest)

    def parts_s(self, layers_RS: Ints) -> tuple[Floats, Floats]:
        """Seconds of the pipeline, and those after it and on the host, which add up to a step."""
        busy = self.busy_s(layers_RS)
        forward = self.fixed_forward_s_RS + self.layer_forward_s_RS * layers_RS
        backward = busy - forward
        running = pipeline_s(forward, backward, self.count_R) + self.fill_s_R
        running = np.maximum(running, self.cards_s_R)
        early = np.cumsum(backward, axis=1) - backward
        late = (self.exchange_s(layers_RS, busy) - early).max(axis=1)
        return running, np.maximum(late, 0.0) + self.after_s_R + self.host_s_R

    def exchange_s(self, layers_RS: Ints, busy_s_RS: Floats) -> Floats:
        """Gradients and update of each stage after its last backward pass."""
        weights = self.weights_RS + self.layer_weights_R[:, None] * layers_RS
        sums = self.reduced_s_RS * weights + self.reduce_start_s_RS
        if self.overlaps:
            sums = beyond_backward_s(sums, busy_s_RS, self.physics)
        return np.asarray(sums + self.update_s_RS * weights)


@dataclass(frozen=True, kw_only=True, eq=False)
class StageRows:
    """Layouts on their places, whose pipelines have equally many stages.

    Attributes:
        columns: flat; virtual stages and offload are ignored.
        places: places of stages for some orders of nodes.
        place_R: which of these each row is on.
        workload: a model known by its shapes.
        kinds: as the places have them.
    """

    columns: LayoutColumns
    places: StagePlaces
    place_R: Ints
    workload: Workload
    kinds: Sequence[MachineKind]

    @staticmethod
    def at_first(
        columns: LayoutColumns,
        places: StagePlaces,
        workload: Workload,
        kinds: Sequence[MachineKind],
    ) -> StageRows:
        """All layouts on the first of the places."""
        place_R = np.zeros(len(columns), np.int64)
        return StageRows(
            columns=columns, places=places, place_R=place_R, workload=workload, kinds=kinds
        )

    @cached_property
    def ranks_RSK(self) -> Ints:
        """Most ranks of a stage in one node of a kind."""
        return np.asarray(self.places.ranks_OSK[self.place_R], np.int64)

    @property
    def physics(self) -> Physics:
        """Efficiencies, which all kinds share."""
        return self.kinds[0].machine.physics

    def slowest(self, seconds_RK: Floats) -> Floats:
        """Seconds of the slowest kind on each stage, if kinds differ."""
        slowest: Floats = np.zeros(self.places.nodes_OS[self.place_R].shape)
        for number in range(len(self.kinds)):
            here = self.ranks_RSK[:, :, number] > 0
            slowest = np.maximum(slowest, here * seconds_RK[:, number, None])
        return slowest

    def ring_lines(self, buffer_bytes_RS: Floats, passes: float) -> tuple[Floats, Floats]:
        """Seconds for a byte, and besides, of a data-parallel ring on each stage.

        Links are taken at the rate of ``buffer_bytes_RS``.
        """
        x, physics = self.columns, self.physics
        ranks, tensor = x.shards_C[:, None], x.tensor_C[:, None]
        local, largest = np.zeros(buffer_bytes_RS.shape), np.ones(buffer_bytes_RS.shape)
        inside = np.maximum(self.ranks_RSK // tensor[:, :, None], 1)
        for number, kind in enumerate(self.kinds):
            size = np.minimum(inside[:, :, number], ranks)
            seconds = link_s(kind.machine.link, size, buffer_bytes_RS, passes)
            local = np.maximum(local, np.where(size > 1, seconds / buffer_bytes_RS, 0.0))
            largest = np.maximum(largest, size)
        crossed = (largest > 1) & (tensor > 1)
        card = np.where(
            crossed, self.places.rails_OS[self.place_R], self.places.card_s_OS[self.place_R]
        )
        nodes = self.places.nodes_OS[self.place_R]
        across = passes * ring_share(ranks) * card * tensor
        hops = np.log2(np.maximum(nodes, 2)) * physics.network_latency_s * passes
        several = (nodes > 1) & (ranks > 1)
        each = np.where(several, np.maximum(across, local), local)
        return np.where(ranks > 1, each, 0.0), np.where(several, hops, 0.0)


def stage_seconds(rows: StageRows, stack: Stack | None = None) -> StageSeconds:
    """Lines of all rows; ``stack``: an encoder's or a decoder's layers, None: the mean layer."""
    rows = replace(rows, columns=rows.columns.in_sequences(rows.workload))
    first, last, layer, forward, compute = _micro_batch_s(rows, stack)
    fixed = np.zeros(layer.shape)
    fixed[:, 0] += first[:, 0]
    fixed[:, -1] += last[:, -1]
    sends, cards = _sends_s(rows)
    exposed = 1.0 - rows.physics.point_to_point_overlap
    paced = np.zeros(layer.shape)
    paced[:, :-1] += exposed * sends
    paced[:, 1:] += exposed * sends
    weights, layer_weights = _weights(rows)
    gathered = _gathers_s(rows, compute, layer_weights)
    reduced, start = _reductions_s(rows, weights, layer_weights)
    after = _tied_s(rows)
    fixed[:, 0] += _outside_s(rows)
    return StageSeconds(
        layer_s_RS=layer + gathered,
        fixed_s_RS=fixed + paced,
        layer_forward_s_RS=forward + _FORWARD * gathered,
        fixed_forward_s_RS=_FORWARD * fixed + 0.5 * paced,
        weights_RS=weights,
        layer_weights_R=layer_weights,
        reduced_s_RS=reduced,
        reduce_start_s_RS=start,
        update_s_RS=_update_s(rows),
        fill_s_R=2.0 * (1.0 - exposed) * sends.sum(axis=1),
        cards_s_R=cards,
        after_s_R=after,
        host_s_R=_host_s(rows),
        count_R=rows.columns.accumulation_C,
        overlaps=overlaps_reduction(rows.workload.software),
        physics=rows.physics,
    )


def _host_s(rows: StageRows) -> Floats:
    """The host's own time, and frozen models on the slowest kind."""
    x, host = rows.columns, _roofline(rows.kinds[0], rows.workload)
    frozen_s = [frozen_passes_s(x, rows.workload, kind.machine) for kind in rows.kinds]
    host_s_R = host.micro_batch_s * x.accumulation_C + host.step_s
    return np.asarray(host_s_R + np.max(frozen_s, axis=0), np.float64)


def _micro_batch_s(rows: StageRows, stack: Stack | None) -> Iterator[Floats]:
    """Seconds as in ``_SECONDS`` on the slowest kind of each stage, ZeRO 3's gathers apart."""
    whole = replace(rows.columns, zero_stage_C=np.zeros_like(rows.columns.zero_stage_C))
    inner, which = distinct(whole)
    of_kind = [_inner_times(kind, rows.workload, inner, stack) for kind in rows.kinds]
    for values in _SECONDS:
        yield rows.slowest(np.stack([values(times)[which] for times in of_kind], axis=1))


def _inner_times(
    kind: MachineKind, workload: Workload, inner: InnerLayouts, stack: Stack | None
) -> InnerTimes:
    roofline = _roofline(kind, workload)
    predicted = inner_times(workload, inner, kind.machine, stack)
    if kind.measured is None:
        return predicted
    return with_measured(predicted, inner, roofline, kind.measured)


def _roofline(kind: MachineKind, workload: Workload) -> Roofline:
    return Roofline(workload=workload, machine=kind.machine)


def _sends_s(rows: StageRows) -> tuple[Floats, Floats]:
    """Activations of a micro-batch to the next stage, cut over tensor and context ranks.

    Also the seconds that the busiest card sends in a step.
    """
    x, work = rows.columns, rows.workload
    tokens = x.micro_batch_C * work.sequence_length / (x.context_C * x.tensor_C)
    sent = tokens * work.architecture.hidden * work.precision.value_bytes
    each = rows.places.send_s_OB[rows.place_R]
    cards = x.accumulation_C * sent * rows.places.cards_s_O[rows.place_R]
    return np.asarray(sent[:, None] * each + rows.physics.network_latency_s), np.asarray(cards)


def _weights(rows: StageRows) -> tuple[Floats, Floats]:
    """Weights of a rank besides its layers, on each stage, and of each of its layers."""
    x, model = rows.columns, rows.workload.architecture
    words = embedding_weights(model)
    ends = np.zeros((len(x), rows.places.ranks_OSK.shape[1]))
    ends[:, 0] += words
    if not model.tied_embeddings or ends.shape[1] > 1:
        ends[:, -1] += words
    alone = rank_weights(replace(x, pipeline_C=np.ones_like(x.pipeline_C)), rows.workload)
    outside = words * (1 if model.tied_embeddings else 2) / x.tensor_C
    return ends / x.tensor_C[:, None], (alone - outside) / all_layers(model)


def _reductions_s(
    rows: StageRows, weights_RS: Floats, layer_weights_R: Floats
) -> tuple[Floats, Floats]:
    """Seconds for a weight, and besides, in which replicas sum gradients once a step.

    ZeRO 1 and 2 scatter and gather; ZeRO 3's traffic is in its layers.
    """
    x, work = rows.columns, rows.workload
    passes = reduction_passes(x)
    each = trained_share(work) * work.software.reduced_bytes
    even = all_layers(work.architecture) / weights_RS.shape[1]
    usual = (weights_RS + even * layer_weights_R[:, None]) * each
    line, start = rows.ring_lines(usual, ALL_REDUCE)
    return line * each * passes[:, None], start * passes[:, None]


def _gathers_s(rows: StageRows, compute_s_RS: Floats, layer_weights_R: Floats) -> Floats:
    """ZeRO 3's part of a layer: it gathers weights in both passes and scatters gradients."""
    x, work = rows.columns, rows.workload
    if not (sharded := x.zero_stage_C >= 3).any():
        return np.zeros_like(compute_s_RS)
    buffer = np.broadcast_to(
        (layer_weights_R * work.frozen_matrix_bytes)[:, None], compute_s_RS.shape
    )
    line, start = rows.ring_lines(buffer, GATHER)
    pieces = 1 if has_flat_gathers(work.software) else GATHERED_MATRICES
    hops = (start > 0) * pieces * x.shards_C[:, None] * rows.physics.hop_s
    moved = (line * buffer + start + hops) * (2.0 + trained_share(work))
    return np.where(sharded[:, None], exposed_s(moved, compute_s_RS, rows.physics), 0.0)


def _outside_s(rows: StageRows) -> Floats:
    """Sharded embeddings are gathered twice, their gradients scattered; half of it is hidden."""
    x, work = rows.columns, rows.workload
    if not (sharded := x.zero_stage_C >= 3).any():
        return np.zeros(len(x))
    passes = 2.0 + trained_share(work)
    words = embedding_weights(work.architecture) * work.precision.value_bytes
    buffer = np.full((len(x), rows.places.ranks_OSK.shape[1]), passes * words)
    line, start = rows.ring_lines(buffer, GATHER)
    hops = (start[:, 0] > 0) * x.shards_C * rows.physics.hop_s
    return np.asarray(sharded * MOST_HIDDEN * (line[:, 0] * buffer[:, 0] + start[:, 0] + hops))


def _tied_s(rows: StageRows) -> Floats:
    """The first and the last stage sum the gradients of the embeddings that they share."""
    x, work = rows.columns, rows.workload
    model = work.architecture
    if not model.tied_embeddings or rows.places.ranks_OSK.shape[1] == 1:
        return np.zeros(len(x))
    words = embedding_weights(model) * trained_share(work) * work.software.reduced_bytes
    latency = ALL_REDUCE * rows.physics.network_latency_s
    both = ALL_REDUCE * ring_share(np.array([2]))
    return np.asarray(both * words / x.tensor_C * rows.places.tied_s_O[rows.place_R] + latency)


def _update_s(rows: StageRows) -> Floats:
    """The optimizer reads and writes the state of a weight on the slowest memory of a stage."""
    physics = rows.physics
    moved = trained_share(rows.workload) * update_traffic_bytes(rows.workload, physics)
    of_kind = np.array(
        [
            moved / (kind.machine.accelerator.memory_bytes_per_s * physics.memory_efficiency)
            for kind in rows.kinds
        ]
    )
    slowest = rows.slowest(np.broadcast_to(of_kind, (len(rows.columns), len(of_kind))))
    return np.asarray(slowest / rows.columns.optimizer_shards_C[:, None])


def pipeline_s(forward_s_RS: Floats, backward_s_RS: Floats, count_R: Ints | Floats) -> Floats:
    """From the first forward pass of a step to its last backward pass, sends apart.

    Each stage bounds the step from below: the first micro-batch must reach it, it must work off
    all of them in turn, and the last one must come back. While it is in its warm-up of
    ``w = P - 1 - s`` forward passes it waits for the stages behind it, which return the first
    micro-batch only after both their passes. The step takes the largest of these bounds.

    Source:
        Of 1F1B: Narayanan et al. 2019, "PipeDream", section 3.2. Against a simulation of each
        pass it is within 1 % in 96 % of random pipelines, and never above it
        (``tests/autotuner/mixed/test_schedule.py``).
    """
    both = forward_s_RS + backward_s_RS
    behind = np.cumsum(both[:, ::-1], axis=1)[:, ::-1] - both
    before = both.sum(axis=1, keepdims=True) - behind - both
    waiting = np.arange(both.shape[1] - 1, -1, -1.0)
    count = np.asarray(count_R, np.float64)[:, None]
    steady = count * both
    steady = steady + np.maximum(0.0, behind - waiting * forward_s_RS)
    steady = steady + np.maximum(0.0, behind - waiting * backward_s_RS)
    short = np.maximum(
        np.maximum(
            forward_s_RS + behind + count * backward_s_RS,
            count * forward_s_RS + behind + backward_s_RS,
        ),
        count * both,
    )
    return np.asarray((before + np.where(count - 1 > waiting, steady, short)).max(axis=1))


def decoder_share(model: Architecture, layers_RS: Ints) -> Floats:
    """Part of the layers of each stage that is the decoder's, which come last."""
    before = np.cumsum(layers_RS, axis=1) - layers_RS
    encoder = np.clip(model.encoder_layers - before, 0, layers_RS)
    return np.asarray(1.0 - encoder / np.maximum(layers_RS, 1))


def seconds_of_makes(rows: StageRows, share_RS: Floats) -> StageSeconds:
    """Lines as of ``stage_seconds``; ``share_RS`` of a stage's layers are a decoder's, if any."""
    if not rows.workload.architecture.encoder_layers:
        return stage_seconds(rows)
    encoder, decoder = (stage_seconds(rows, one) for one in stacks(rows.workload))
    return encoder.blend(decoder, share_RS)


def seconds_of_cuts(rows: StageRows) -> tuple[StageSeconds, Ints, Bools]:
    """Lines of each row once for each border between encoder and decoder.

    Returns:
        The lines, the number of each one's row, and which of its stages are the decoder's.
    """
    encoder, decoder = (stage_seconds(rows, one) for one in stacks(rows.workload))
    stages = encoder.layer_s_RS.shape[1]
    count = len(rows.columns)
    cut = np.tile(np.arange(1, stages), count)
    numbers = np.repeat(np.arange(count), stages - 1)
    late = np.arange(stages) >= cut[:, None]
    times = encoder.take(numbers).blend(decoder.take(numbers), late.astype(np.float64))
    return times, numbers, late
