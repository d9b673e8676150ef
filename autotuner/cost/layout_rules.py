"""Layouts that cannot exist, by named rules over columns.

A rule is one function of columns. A planner counts the layouts that each one drops; a message
about a single layout (``fitting``) finds the valid values by asking the same function.

Shapes: S = stages, C = candidates. The last stage has the head, the first one the embedding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.core import Architecture, PipelineSchedule, Workload

from ..layers import state_heads
from ..space import Bools, Floats, Ints
from .hardware import SENT, Machine, domain_cards_bytes_per_s
from .layout_columns import FULL, LayoutColumns, border_byte_s, layers_on, stage_layers

Keep: TypeAlias = Callable[[LayoutColumns, Architecture, int], Bools]
ONE_F_ONE_B = PipelineSchedule()
_ROUNDING = 1e-6
"""By which a mean of equal layers may be off."""
_RANK_BITS = 32
_MOST_EMPTY = 0.05
"""Largest part of the layers' places that uneven virtual stages may leave empty, in which ranks
wait: DeepSeek-V3's 61 layers on 64 places (github:NVIDIA-NeMo/Megatron-Bridge, recipes/deepseek,
pp 16, 8 x 2 and 4 x 4; github:NVIDIA/Megatron-LM,
docs/api-guide/pipeline_parallel_layout.md, 16 x 2) leave 0.047."""


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """A rule that a layout must obey.

    Attributes:
        name: used in lists of rejected layouts.
        knob: the field of ``LayoutColumns`` at fault.
        flag: its spelling on a command line.
        why: problem of a value; may use ``{value}`` and fields of the model in braces.
        keep: rows of the columns that obey.
    """

    name: str
    knob: str
    flag: str
    why: str
    keep: Keep


def _layers(a: Architecture) -> int:
    return a.layers + a.encoder_layers


def _divides(layers: int, pieces: Ints) -> Bools:
    return np.asarray((layers % pieces == 0) | ((layers + 2) % pieces == 0))


def can_cut(layers: int, pieces: Ints) -> Bools:
    """True if virtual stages have a layer at least, and equally many or nearly so."""
    places = -(-layers // pieces) * pieces
    is_nearly_even = (pieces <= layers) & ((1.0 - _MOST_EMPTY) * places <= layers)
    return np.asarray(_divides(layers, pieces) | is_nearly_even)


def has_even_pieces(x: LayoutColumns, a: Architecture) -> Bools:
    """True if virtual stages have equally many layers, or if embedding and head count as two."""
    return np.asarray((x.virtual_C == 1) | _divides(_layers(a), x.pipeline_C * x.virtual_C))


def _vpp_layers(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    return np.asarray((x.virtual_C == 1) | can_cut(_layers(a), x.pipeline_C * x.virtual_C))


def _some_layers(x: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    per_stage = -(-_layers(a) // x.pipeline_C)
    is_full = x.recompute_C == FULL
    fits = is_full & (x.recompute_layers_C <= per_stage)
    return np.asarray((x.recompute_layers_C < 0) | fits)


RULES: tuple[LayoutRule, ...] = (
    LayoutRule(
        "tp_heads",
        "tensor_C",
        "tp",
        "does not divide {heads} heads",
        lambda x, a, sequence: a.heads % x.tensor_C == 0,
    ),
    LayoutRule(
        "tp_kv_heads",
        "tensor_C",
        "tp",
        "neither divides {kv_heads} key-value heads nor is a multiple of them",
        lambda x, a, sequence: (a.kv_heads % x.tensor_C == 0) | (x.tensor_C % a.kv_heads == 0),
    ),
    LayoutRule(
        "tp_ffn",
        "tensor_C",
        "tp",
        "does not divide the MLP's {ffn}",
        lambda x, a, _: math.gcd(a.ffn, a.experts.ffn if a.experts else a.ffn) % x.tensor_C == 0,
    ),
    LayoutRule(
        "tp_states",
        "tensor_C",
        "tp",
        "does not divide the key heads or groups of its layers with a state",
        lambda x, a, _: state_heads(a) % x.tensor_C == 0,
    ),
    LayoutRule(
        "pp_layers",
        "pipeline_C",
        "pp",
        "is more than {layers} layers",
        lambda x, a, sequence: x.pipeline_C <= _layers(a),
    ),
    LayoutRule(
        "vpp_pp",
        "virtual_C",
        "vpp",
        "needs a pipeline, but pp is 1",
        lambda x, a, sequence: (x.virtual_C == 1) | (x.pipeline_C > 1),
    ),
    LayoutRule(
        "vpp_layers",
        "virtual_C",
        "vpp",
        "x pp={pp} leaves more than 5 % of the places of {layers} layers empty",
        _vpp_layers,
    ),
    LayoutRule(
        "vpp_micro_batches",
        "virtual_C",
        "vpp",
        "needs micro-batches in multiples of pp={pp}, but a step has {accumulation}",
        lambda x, a, sequence: (x.virtual_C == 1) | (x.accumulation_C % x.pipeline_C == 0),
    ),
    LayoutRule(
        "cp_sequence",
        "context_C",
        "cp",
        "does not split {sequence} tokens into two equal parts for each rank",
        lambda x, a, sequence: sequence % np.where(x.context_C > 1, 2 * x.context_C, 1) == 0,
    ),
    LayoutRule(
        "ep_experts",
        "expert_C",
        "ep",
        "does not divide {experts} experts",
        lambda x, a, sequence: (a.experts.count if a.experts else 1) % x.expert_C == 0,
    ),
    LayoutRule(
        "ep_ranks",
        "expert_C",
        "ep",
        "does not divide dp x cp = {ranks} ranks",
        lambda x, a, sequence: x.shards_C % x.expert_C == 0,
    ),
    LayoutRule(
        "sp_tp",
        "sequence_parallel_C",
        "sequence-parallel",
        "needs tp above 1",
        lambda x, a, sequence: ~x.sequence_parallel_C | (x.tensor_C > 1),
    ),
    LayoutRule(
        "sp_sequence",
        "tensor_C",
        "tp",
        "does not divide {sequence} tokens, which sequence-parallel needs",
        lambda x, a, sequence: (
            sequence % np.where(x.sequence_parallel_C, x.tensor_C * x.context_C, 1) == 0
        ),
    ),
    LayoutRule(
        "offload_zero",
        "zero_stage_C",
        "zero",
        "keeps weights whole, so that offload=parameters needs another stage",
        lambda x, a, sequence: ~x.are_weights_away_C | (x.zero_stage_C == 3),
    ),
    LayoutRule(
        "recompute_layers",
        "recompute_layers_C",
        "recompute-layers",
        "needs recompute=full and at most the layers of a stage",
        _some_layers,
    ),
)


def rows_obeying(columns: LayoutColumns, a: Architecture, sequence: int) -> Bools:
    """Rows that break no rule."""
    kept = np.ones(np.broadcast_shapes(columns.tensor_C.shape, columns.data_C.shape), np.bool_)
    for rule in RULES:
        kept = kept & rule.keep(columns, a, sequence)
    return kept


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stages:
    """The pipeline stages that are looked at; numbers are floats, since casts cost time.

    Attributes:
        stage_SC: their numbers, from 0.
        start_SC: the first layer of each.
        count_SC: its layers.
        waiting_SC: micro-batches whose activations it holds at once.
        is_first_SC: 1 for the first stage, otherwise 0.
        is_last_SC: the same for the last one.
    """

    stage_SC: Ints
    start_SC: Ints
    count_SC: Floats
    waiting_SC: Floats
    is_first_SC: Floats
    is_last_SC: Floats

    @staticmethod
    def of(
        stage_SC: Ints,
        columns: LayoutColumns,
        layers: int,
        given_SC: Ints | None = None,
        schedule: PipelineSchedule = ONE_F_ONE_B,
    ) -> Stages:
        """Look at ``stage_SC`` of each candidate's pipeline.

        ``stage_SC``: numbers of stages. ``given_SC``: layers of every stage if they are not even;
        stages are then all of them. If there are more numbers than stages, the last stages are all
        looked at.
        """
        last_SC = 0 if schedule.chunks > 1 else columns.pipeline_C - 1
        is_first_SC, is_last_SC = stage_SC == 0, stage_SC == last_SC
        start_SC, count_SC = layers_on(stage_SC, columns.pipeline_C, layers)
        if given_SC is not None:
            before_SC = np.cumsum(given_SC, axis=0) - given_SC
            start_SC, count_SC = np.minimum(before_SC, layers - given_SC), given_SC
        return Stages(
            stage_SC=stage_SC,
            start_SC=start_SC,
            count_SC=count_SC.astype(np.float64),
            waiting_SC=in_flight(stage_SC, columns, schedule),
            is_first_SC=is_first_SC.astype(np.float64),
            is_last_SC=is_last_SC.astype(np.float64),
        )

    def layers_between(self, first: int, end: int) -> Floats:
        """Number of the layers ``first`` to ``end`` (exclusive) on each stage."""
        inside: Any = np.minimum(self.start_SC + self.count_SC, end)
        return np.asarray(np.maximum(inside - np.maximum(self.start_SC, first), 0.0))


def stages_of_peak(columns: LayoutColumns, leading_layers: int, layers: int) -> Ints:
    """Candidates for the stage that needs the most memory, as rows.

    Under 1F1B the waiting micro-batches fall from stage to stage, so that only the first stage of
    each make can be the fullest.

    ``leading_layers``: layers of another make that come first (encoder, dense before experts).
    """
    last = columns.pipeline_C - 1
    rows = [np.zeros_like(last)]
    if (layers % columns.pipeline_C).any():
        rows.append(np.minimum(1, last))
    if leading_layers:
        per_stage = np.maximum(1, layers // columns.pipeline_C)
        after = -(-leading_layers // per_stage)
        rows += [np.minimum(after, last), np.minimum(after + 1, last)]
    return np.stack([*rows, last])


def in_flight(
    stage_SC: Ints, columns: LayoutColumns, schedule: PipelineSchedule = ONE_F_ONE_B
) -> Floats:
    """Micro-batches whose activations a stage holds at once; fractions are chunks of its layers.

    Source:
        1F1B: Narayanan et al. 2019, "PipeDream", section 3.2. Interleaved: Narayanan et al. 2021,
        "Efficient Large-Scale Language Model Training", section 2.2; the first stage has
        1 + (p - 1) / (p v) of its layers' share (Korthikanti et al. 2022, section 4.2.3).
    """
    if not schedule.interleaves:
        most = schedule.held_stages * columns.pipeline_C + schedule.held_more
        held = np.minimum(most - (stage_SC if schedule.falls else 0), columns.accumulation_C)
        held = np.where(columns.pipeline_C > 1, held, 1.0) + 0.0 * stage_SC
        return np.asarray(held, np.float64)
    stages, chunks = columns.pipeline_C, columns.virtual_C
    behind = stages - stage_SC
    warm_up = np.where(chunks > 1, 2 * behind - 1 + (chunks - 1) * stages, behind)
    return np.asarray(np.minimum(warm_up, columns.accumulation_C * chunks) / chunks)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageSends:
    """Seconds in which each rank of a pipeline's stages sends a buffer; 0 for one stage.

    A border between two stages is as slow as the slowest link that it crosses.

    Attributes:
        way_s_C: across all borders, one after the other.
        slowest_s_C: across the slowest border.
        end_s_C: across the slower border of the first and the last stage.
        middle_s_C: across both borders of the slowest stage between them.
        back_s_C: from the last stage to the first one.
        cards_s_C: a buffer from each rank of a node through its cards; 0 in one node.
        card_borders_C: borders, at most 2, that the busiest cards send across.
        exposed: share of the sends during which a stage does not compute.
        schedule: order in which stages compute and send.
    """

    way_s_C: Floats
    slowest_s_C: Floats
    end_s_C: Floats
    middle_s_C: Floats
    back_s_C: Floats
    cards_s_C: Floats
    card_borders_C: Floats
    exposed: float = 1.0
    schedule: PipelineSchedule = ONE_F_ONE_B

    @staticmethod
    def alike(stages_C: Ints, send_s_C: Floats) -> StageSends:
        """Sends of equal seconds between all stages."""
        one_s_C = np.where(stages_C > 1, send_s_C, 0.0)
        return StageSends(
            way_s_C=np.asarray((stages_C - 1) * one_s_C, np.float64),
            slowest_s_C=one_s_C,
            end_s_C=one_s_C,
            middle_s_C=2.0 * one_s_C,
            back_s_C=one_s_C,
            cards_s_C=one_s_C,
            card_borders_C=np.clip(stages_C - 1.0, 0.0, 2.0),
        )

    @staticmethod
    def between(
        stages_C: Ints, stage_ranks_C: Ints, machine: Machine, sent_bytes_C: Floats
    ) -> StageSends:
        """Sends if stages fill equal nodes in order and all ranks of a node send at once."""
        stages_C, ranks_C = np.broadcast_arrays(stages_C, stage_ranks_C)
        keys, which = np.unique((stages_C << _RANK_BITS) + ranks_C, return_inverse=True)
        pairs = [divmod(key, 1 << _RANK_BITS) for key in keys.tolist()]
        rows = np.array([_byte_seconds(machine, *pair) for pair in pairs]).T
        way, slowest, end, middle, back, cards, borders = rows[:, which.reshape(stages_C.shape)]
        start_s_C = np.where(stages_C > 1, machine.physics.network_latency_s, 0.0)
        return StageSends(
            way_s_C=sent_bytes_C * way + (stages_C - 1) * start_s_C,
            slowest_s_C=sent_bytes_C * slowest + start_s_C,
            end_s_C=sent_bytes_C * end + start_s_C,
            middle_s_C=sent_bytes_C * middle + 2.0 * start_s_C,
            back_s_C=sent_bytes_C * back + start_s_C,
            cards_s_C=sent_bytes_C * cards,
            card_borders_C=borders,
            exposed=1.0 - machine.physics.point_to_point_overlap,
        )


def _byte_seconds(machine: Machine, stages: int, ranks: int) -> tuple[float, ...]:
    """Fields of ``StageSends`` for one byte, latencies aside. Racks are filled by whole stages."""
    if stages == 1:
        return (0.0,) * 7
    node = machine.domain
    if machine.linked_gpus is not None and ranks <= node:
        node = node // ranks * ranks
    nodes = -(-stages * ranks // node)
    link_s = 1.0 / (SENT * machine.link.bytes_per_s)
    rank_s = 1.0 / domain_cards_bytes_per_s(machine) if nodes > 1 else 0.0
    border_s = border_byte_s(stages, ranks, node, link_s=link_s, cards_s=rank_s)
    cards_s = min(ranks, node) * rank_s
    return (
        float(border_s.sum()),
        float(border_s.max()),
        float(max(border_s[0], border_s[-1])),
        float((border_s[1:] + border_s[:-1]).max(initial=0.0)),
        cards_s or link_s,
        cards_s,
        min(stages, nodes, 3) - 1.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTimes:
    """Forward and backward seconds of a micro-batch: on the slowest stage, and on all in a row.

    ``paced_s_C`` is the slowest stage with its exposed sends.
    """

    slowest_s_C: Floats
    all_s_C: Floats
    paced_s_C: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerSeconds:
    """Time of a micro-batch in the mean layer, and in a layer of the slower stack.

    ``after_s_C`` is a layer behind leading layers of another make; None: as the mean layer.
    ``fullest_C`` is the part of all layers' time on the slowest stage, if it is known.
    ``is_balanced``: the last stage has fewer layers, so that its head makes it no slower.
    """

    mean_s_C: Floats
    slowest_s_C: Floats | None = None
    after_s_C: Floats | None = None
    fullest_C: Floats | None = None
    is_balanced: bool = False


def stage_times(
    layouts: LayoutColumns,
    layers: int,
    *,
    layer: LayerSeconds,
    first_s_C: Floats,
    last_s_C: Floats,
    sends: StageSends,
) -> StageTimes:
    """Layers as they are given, else evenly; see :func:`stage_layers`.

    An encoder and a decoder have separate stages: the slower stages set the pace. Leading layers
    of another make, for example without experts, are on the first stage.
    """
    schedule = sends.schedule
    after_s_C = layer.mean_s_C if layer.after_s_C is None else layer.after_s_C
    on_first, on_middle, on_last = stage_layers(layers, layouts)
    if layer.is_balanced and layouts.given_C3 is None:
        on_last = _beside_head(layers, layouts, last_s_C / after_s_C)
        on_first = on_middle = np.ceil((layers - on_last) / np.maximum(layouts.pipeline_C - 1, 1))
    alone = layers * layer.mean_s_C + first_s_C + last_s_C
    ends = np.maximum(on_last * after_s_C + last_s_C, on_first * layer.mean_s_C + first_s_C)
    if schedule.is_folded:  # a rank with copies has each end for half of the micro-batches
        both = (first_s_C + last_s_C) / schedule.copies
        ends = (on_first * layer.mean_s_C + on_last * after_s_C) / 2.0 + both
    middle = on_middle * after_s_C
    if layer.slowest_s_C is not None:
        is_uneven = layer.slowest_s_C > (1.0 + _ROUNDING) * layer.mean_s_C
        slower = np.where(is_uneven, on_middle * layer.slowest_s_C, 0.0)
        ends, middle = np.maximum(ends, slower), np.maximum(middle, slower)
    if layer.fullest_C is not None:
        ends = middle = alone * layer.fullest_C
    (virtual, around), is_long = _chunks(layouts, schedule), layouts.pipeline_C > 2
    ends_sent = sends.exposed * (virtual * sends.end_s_C + around * sends.back_s_C)
    middle_sent = sends.exposed * virtual * sends.middle_s_C
    slowest = np.maximum(ends, np.where(is_long, middle, 0.0))
    paced = np.maximum(ends + ends_sent, np.where(is_long, middle + middle_sent, 0.0))
    has_stages = layouts.pipeline_C > 1
    return StageTimes(
        slowest_s_C=np.where(has_stages, slowest, alone),
        all_s_C=alone,
        paced_s_C=np.where(has_stages, paced, alone),
    )


def _beside_head(layers: int, layouts: LayoutColumns, head_C: Floats) -> Floats:
    """Layers of the last stage for which the slowest stage is fastest; the head is as many."""
    stages_C = np.maximum(layouts.pipeline_C, 2)
    fewer_C = np.floor(np.maximum((layers + head_C) / stages_C - head_C, 0.0))

    def pace(count_C: Floats) -> Floats:
        others_C = np.ceil((layers - count_C) / (stages_C - 1))
        return np.asarray(np.maximum(count_C + head_C, others_C))

    return np.where(pace(fewer_C + 1.0) < pace(fewer_C), fewer_C + 1.0, fewer_C)


def _bubble_share(layouts: LayoutColumns, schedule: PipelineSchedule) -> Floats | float:
    """The bubble of a schedule over the bubble of 1F1B."""
    if schedule.interleaves:
        return 1.0
    stages = layouts.pipeline_C
    parts = np.maximum(schedule.bubble_stages * stages - schedule.bubble_less, 0.0)
    return np.asarray(schedule.bubble * parts / np.maximum(stages - 1, 1), np.float64)


def _chunks(layouts: LayoutColumns, schedule: PipelineSchedule) -> tuple[Ints, Ints]:
    """Stages of each rank, and sends from the last rank to the first; a V turns without one."""
    if schedule.interleaves:
        return layouts.virtual_C, layouts.virtual_C - 1
    one_C = np.ones_like(layouts.virtual_C)
    return schedule.chunks * one_C, 0 * one_C


def schedule_s(
    layouts: LayoutColumns, stages: StageTimes, sends: StageSends
) -> tuple[Floats, Floats]:
    """Seconds of a step's micro-batches, and the seconds of sends among them.

    The first micro-batch passes all stages, the others follow at the pace of the slowest one
    (Narayanan et al. 2021, arXiv:2104.04473, section 2.2: a bubble of (p - 1) / (v m) if v virtual
    stages are interleaved, with v - 1 sends from the last stage to the first). Other schedules
    have a part of this bubble. No step is shorter than what its cards send.
    """
    schedule = sends.schedule
    count, share = np.maximum(layouts.accumulation_C, 1.0), _bubble_share(layouts, schedule)
    virtual, around = _chunks(layouts, schedule)
    cut = layouts.virtual_C if schedule.interleaves else 1.0
    others = (stages.all_s_C - stages.slowest_s_C) / cut
    running = count * stages.slowest_s_C + share * others
    there = virtual * sends.way_s_C + around * sends.back_s_C
    fill = (stages.all_s_C + 2.0 * sends.exposed * there - stages.paced_s_C) / cut
    fill = fill - (1.0 - share) * others
    sending = count * stages.paced_s_C + fill + 2.0 * (1.0 - sends.exposed) * sends.way_s_C
    missing = np.where(sends.card_borders_C > 0, 2.0 - sends.card_borders_C, 0.0)
    pieces = virtual * sends.card_borders_C + around * missing
    sending = np.maximum(sending, count * pieces * sends.cards_s_C)
    return np.asarray(sending), np.asarray(sending - running)
