"""The best layout on each part of a mixed cluster. Not: money, nor which part to take (front).

Shapes: R = rows, S = stages, K = kinds, P = parts of the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..cost import (
    memory_bytes,
    verdict,
)
from ..layers import (
    all_layers,
)
from ..planner import Plan, Planned, StagePlan, plan_only_by, tightest_stage
from ..space import Bools, Floats, Ints
from .candidates import Layouts, MixedQuestion, Rows, Wanted, sorted_orders
from .kinds import usd_per_hour
from .one_layout import given_stages, stage_kinds, uneven_samples
from .partition import Chains, SplitPrice, feasible_rows, move_layers, split_layers
from .times import StageRows, StageSeconds, decoder_share, seconds_of_cuts, seconds_of_makes

_MOVED = 8
"""Rows of each part whose layers are moved one by one."""
_FEW_PEAKS = 1 << 12
_UNEVEN = 64
"""Rows of all parts together that are tried with separate micro-batches for each replica."""
_MOVED_CELLS = 1 << 18
"""Rows times stages squared from which on fewer rows have their layers moved."""
_SPARE = 2
"""Rows of each part beyond those asked for, as memory may rule one out when it is exact."""
_NEAR_BOUND = 1.05
"""Bounds of a row's cuts between encoder and decoder that are looked at, over the lowest."""
_MOST_GAIN = 0.15
"""Largest share by which another order is expected to shorten a step, for many orders."""
_LARGEST = 8
_FEW_ORDERS = 64
"""Most orders of a part that are all priced at once."""


def mixed_plan(question: MixedQuestion) -> Plan:
    """The best rows of each part, the fastest first: enumerate, place, split, price and rank.

    If nodes have many orders, orders with equal nodes together come first. Of the
    others only layouts are priced that may still win: their bound is below the best step so far,
    and they are at most 15 % slower than it.

    Raises:
        ConfigError: the cluster has too many parts.
    """
    layouts = Layouts.of(question)
    best_s_P = np.full(len(layouts.parts), np.inf)
    if _most_orders(layouts) <= _FEW_ORDERS:
        considered, rows = layouts.rows(question.order_rule)
        found = _split_all(rows, question, best_s_P)
    else:
        _, rows = layouts.rows(sorted_orders)
        found = _split_all(rows, question, best_s_P)
        for one in found:
            np.minimum.at(best_s_P, one.rows.part_R, one.step_s_R)
        considered, rows = layouts.rows(
            question.order_rule, _pick_wanted(layouts, found, best_s_P)
        )
        found += _split_all(rows, question, best_s_P)
    return Plan(
        considered=considered,
        safe=sum(len(one.seen.part_R) for one in found),
        best=tuple(_best_rows(found, question)),
    )


def every_row(question: MixedQuestion) -> tuple[Planned, ...]:
    """The best row of each mesh and micro-batch on each order of nodes, the fastest first.

    Rows that fit come before others, then the fastest. If none has room for all layers, memory
    does not bound the stages, and the row says that it does not fit.

    Raises:
        ConfigError: the cluster has too many parts.
    """
    _, rows = Layouts.of(question).rows(question.order_rule)
    chunks = (_split_anyway(chunk, question) for one in rows for chunk in one.chunks())
    found = [row for one in chunks for row in _rows(one, question, keeps_unfit=True) if row]
    return tuple(sorted(found, key=lambda row: row.step_s))


def _split_anyway(rows: Rows, question: MixedQuestion) -> _Contenders:
    """Split the layers of all rows, and keep the best variant of each mesh and micro-batch."""
    rows, chains, times = _chains(rows, question)
    fits_R = feasible_rows(chains)
    room = np.where(fits_R[:, None], chains.most_RS, sum(chains.layers))
    chains = replace(chains, most_RS=room)
    possible = np.flatnonzero(feasible_rows(chains))
    chains, times, rows = chains.take(possible), times.take(possible), rows.take(possible)
    split, step_s = split_layers(chains, _price(times))
    seen = _Seen.of(rows, chains.step_bound_s_R)
    every = _Contenders(
        rows=rows, chains=chains, times=times, layers_RS=split, step_s_R=step_s, seen=seen
    )
    columns = rows.layouts.take(rows.layout_R)
    mesh = (columns.tensor_C, columns.data_C, columns.micro_batch_C)
    order = np.lexsort((step_s, ~fits_R[possible], *mesh, rows.place_R))
    same = np.stack([*mesh, rows.place_R])[:, order]
    is_first = np.r_[True, (same[:, 1:] != same[:, :-1]).any(axis=0)][: len(order)]
    return every.take(order[is_first])


def _most_orders(layouts: Layouts) -> int:
    """Orders of the part that has most, which is among the largest ones."""
    question = layouts.question
    largest = layouts.parts[layouts.parts.sum(axis=1).argsort()[-_LARGEST:]]
    return max(len(question.order_rule(part, question.kinds)) for part in largest.tolist())


def _split_all(
    rows: Sequence[Rows], question: MixedQuestion, best_s_P: Floats
) -> list[_Contenders]:
    chunks = (_split(chunk, question, best_s_P) for one in rows for chunk in one.chunks())
    return [one for one in chunks if one is not None]


def _pick_wanted(layouts: Layouts, found: Sequence[_Contenders], best_s_P: Floats) -> Wanted:
    """Layouts of each part that another order may make the best."""
    wanted: Wanted = defaultdict(lambda: np.zeros(0, np.bool_))
    for stages, columns in layouts.by_stages.items():
        kept = np.zeros((len(best_s_P), len(columns)), np.bool_)
        for seen in (one.seen for one in found if one.rows.stages == stages):
            can = seen.bound_s_R < best_s_P[seen.part_R]
            can &= seen.step_s_R < (1 + _MOST_GAIN) * best_s_P[seen.part_R]
            kept[seen.part_R[can], seen.layout_R[can]] = True
        wanted |= {(part, stages): kept[part] for part in range(len(best_s_P))}
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Seen:
    """All rows that have room for their layers; a bound may rule out their steps (infinite)."""

    part_R: Ints
    layout_R: Ints
    bound_s_R: Floats
    step_s_R: Floats

    @staticmethod
    def of(rows: Rows, bound_s_R: Floats) -> _Seen:
        """The rows, before any step is known."""
        return _Seen(
            part_R=rows.part_R,
            layout_R=rows.layout_R,
            bound_s_R=bound_s_R,
            step_s_R=np.full(len(bound_s_R), np.inf),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Contenders:
    """The fastest rows of some parts, with their layers, before single layers move."""

    rows: Rows
    chains: Chains
    times: StageSeconds
    layers_RS: Ints
    step_s_R: Floats
    seen: _Seen

    def take(self, rows: Ints) -> _Contenders:
        """Some rows by number."""
        return replace(
            self,
            rows=self.rows.take(rows),
            chains=self.chains.take(rows),
            times=self.times.take(rows),
            layers_RS=self.layers_RS[rows],
            step_s_R=self.step_s_R[rows],
        )

    def improve(self) -> _Contenders:
        """With layers moved one by one while that helps."""
        if self.rows.stages == 1:
            return self
        every = np.arange(len(self.step_s_R))
        layers, step_s = move_layers(self.chains, _price(self.times), self.layers_RS, every)
        return replace(self, layers_RS=layers, step_s_R=step_s)


def _best_rows(found: Sequence[_Contenders], question: MixedQuestion) -> list[Planned]:
    """The best rows of each part: layers move if a row is among the first of its part."""
    if not found:
        return []
    parts = len(np.unique(np.concatenate([one.rows.part_R for one in found])))
    stages = max(one.rows.stages for one in found)
    most = max(_MOVED, question.most, _MOVED_CELLS // (parts * stages**2))
    first = _fastest_of_all(found, most)
    kept = _fastest_of_all([one.improve() for one in first], question.most + _SPARE)
    rows = [row for one in kept for row in _rows(one, question) if row is not None]
    if question.is_uneven:
        rows += _uneven_rows(found, question)
    left: dict[tuple[int, ...], int] = defaultdict(lambda: question.most)
    best = []
    for row in sorted(rows, key=lambda row: row.step_s):
        left[row.counts] -= 1
        if left[row.counts] >= 0:
            best.append(row)
    return best


def _uneven_rows(found: Sequence[_Contenders], question: MixedQuestion) -> list[Planned]:
    """Rows whose replicas are on several kinds of node, with their own micro-batches.

    None if the cluster has many parts: each row takes milliseconds.
    """
    parts = {int(part) for one in found for part in one.rows.part_R}
    unlike = [one.take(np.flatnonzero(_are_replicas_unlike(one.rows))) for one in found]
    unlike = [one for one in unlike if len(one.step_s_R)]
    if not unlike or not (most := _UNEVEN // len(parts)):
        return []
    made = []
    for one in _fastest_of_all(unlike, most):
        for number, row in enumerate(_rows(one, question)):
            if row is not None and (uneven := _uneven_row(one, number, row, question)):
                made.append(uneven)
    return made


def _uneven_row(
    found: _Contenders, number: int, row: Planned, question: MixedQuestion
) -> Planned | None:
    """A row with the best micro-batch of each replica; None if equal ones are best."""
    rows, workload, kinds = found.rows, question.workload, question.kinds
    columns = rows.layouts.take(rows.layout_R[number : number + 1])
    places = rows.places.take(rows.place_R[number : number + 1])
    layers = tuple(stage.layers for stage in row.stages)
    free = [
        replace(kind, memory_bytes=(1 - question.headroom) * kind.memory_bytes) for kind in kinds
    ]
    samples = uneven_samples(columns, places, row.order, workload, free, layers)
    if samples is None:
        return None
    given = given_stages(columns, workload, kinds, row.order, layers, samples)
    parts = tuple((name, seconds * given.step_s / row.step_s) for name, seconds in row.parts)
    tightest = tightest_stage(given.stages)
    return replace(
        row,
        layout=replace(row.layout, micro_batch_split=samples),
        stages=given.stages,
        peak_bytes=tightest.peak_bytes,
        limit_bytes=tightest.limit_bytes,
        verdict=verdict(tightest.peak_bytes, tightest.limit_bytes),
        step_s=given.step_s,
        parts=parts,
    )


def _fastest_of_all(found: Sequence[_Contenders], most: int) -> list[_Contenders]:
    sizes = [len(one.step_s_R) for one in found]
    kept = _fastest(
        np.concatenate([one.rows.part_R for one in found]),
        np.concatenate([one.step_s_R for one in found]),
        most,
    )
    which = np.repeat(np.arange(len(found)), sizes)[kept]
    number = kept - np.repeat(np.cumsum(sizes) - sizes, sizes)[kept]
    return [found[i].take(number[which == i]) for i in np.unique(which).tolist()]


def _split(rows: Rows, question: MixedQuestion, best_s_P: Floats) -> _Contenders | None:
    """Split the layers of all rows that can win, and keep the fastest of each part."""
    rows, chains, times = _chains(rows, question)
    possible = np.flatnonzero(feasible_rows(chains))
    if not len(possible):
        return None
    chains, times, rows = chains.take(possible), times.take(possible), rows.take(possible)
    bound_s = chains.step_bound_s_R + times.host_s_R
    seen = _Seen.of(rows, bound_s)
    winning = np.flatnonzero(bound_s < best_s_P[rows.part_R])
    if not len(winning):
        return None
    chains, times, rows = chains.take(winning), times.take(winning), rows.take(winning)
    split, step_s = split_layers(chains, _price(times))
    seen.step_s_R[winning] = step_s
    every = _Contenders(
        rows=rows, chains=chains, times=times, layers_RS=split, step_s_R=step_s, seen=seen
    )
    most = max(_MOVED, question.most, _MOVED_CELLS // (len(best_s_P) * rows.stages**2))
    first = _fastest(rows.part_R, step_s, most)
    if uneven := _UNEVEN // len(best_s_P):
        spread_s = np.where(_are_replicas_unlike(rows), step_s, np.inf)
        first = np.union1d(first, _fastest(rows.part_R, spread_s, uneven))
    return every.take(first)


def _chains(rows: Rows, question: MixedQuestion) -> tuple[Rows, Chains, StageSeconds]:
    """Lines over layers; with an encoder each row once for each stage that its decoder begins at.

    Of these only those are kept whose bound is near the lowest of their row.
    """
    model = question.workload.architecture
    room, columns = _room(rows, question), rows.layouts.take(rows.layout_R)
    placed = StageRows(
        columns=columns,
        places=rows.places,
        place_R=rows.place_R,
        workload=question.workload,
        kinds=question.kinds,
    )
    every = all_layers(model)
    if not model.encoder_layers or rows.stages == 1:
        share = decoder_share(model, np.full((1, 1), every))
        times = seconds_of_makes(placed, share)
        return rows, _chain(times, room, (every,), None), times
    times, numbers, late = seconds_of_cuts(placed)
    chains = _chain(times, room[numbers], (model.encoder_layers, model.layers), late)
    bounds = np.where(feasible_rows(chains), chains.step_bound_s_R, np.inf)
    lowest = bounds.reshape(len(room), -1).min(axis=1)[numbers]
    near = np.flatnonzero(bounds <= _NEAR_BOUND * lowest)
    return rows.take(numbers[near]), chains.take(near), times.take(near)


def _chain(times: StageSeconds, room: Ints, layers: tuple[int, ...], late: Bools | None) -> Chains:
    return Chains(
        fixed_s_RS=times.fixed_s_RS,
        layer_s_RS=times.layer_s_RS,
        most_RS=room,
        layers=layers,
        late_RS=late,
        count_R=times.count_R,
    )


def _are_replicas_unlike(rows: Rows) -> Bools:
    """Rows in which a stage has replicas on several kinds of node."""
    mixed_O = ((rows.places.ranks_OSK > 0).sum(axis=2) > 1).any(axis=1)
    return np.asarray(mixed_O[rows.place_R] & (rows.layouts.data_C[rows.layout_R] > 1))


def _price(times: StageSeconds) -> SplitPrice:
    def price(rows: Ints, layers_RS: Ints) -> Floats:
        whole = len(rows) == len(times.count_R)
        return (times if whole else times.take(rows)).step_s(layers_RS)

    return price


def _fastest(group: Ints, seconds: Floats, most: int) -> Ints:
    order = np.lexsort((seconds, group))
    starts = np.r_[True, group[order][1:] != group[order][:-1]]
    rank = np.arange(len(order)) - np.maximum.accumulate(
        np.where(starts, np.arange(len(order)), 0)
    )
    return order[(rank < most) & np.isfinite(seconds[order])]


def _room(rows: Rows, question: MixedQuestion) -> Ints:
    """Layers that each stage of each row has memory for.

    Memory is a line over the layers, except for an update's need beyond activations, which is
    below the line through few layers and many. If rows are few, each number is priced.
    """
    used, which = np.unique(rows.layout_R, return_inverse=True)
    columns, workload = rows.layouts.take(used), question.workload
    layers, stages = all_layers(workload.architecture), rows.stages
    numbers = np.arange(stages)[:, None]

    def peak(count: int) -> Floats:
        given = np.full((stages, len(used)), count)
        return memory_bytes(columns, workload, numbers, given).total.T

    limits_K = np.array([kind.memory_bytes * (1 - question.headroom) for kind in question.kinds])
    here = rows.places.ranks_OSK > 0
    limit_RS = np.where(here, limits_K, np.inf).min(axis=2)[rows.place_R]
    if len(used) * stages * layers <= _FEW_PEAKS:
        room = np.zeros(limit_RS.shape)
        for count in range(1, layers - stages + 2):
            room += peak(count)[which] <= limit_RS
        return np.asarray(room, np.int64)
    many = max(2, min(layers, -(-2 * layers // stages)))
    few_US, many_US = peak(1), peak(many)
    each_US = (many_US - few_US) / (many - 1)
    room = np.floor((limit_RS - few_US[which]) / each_US[which]) + 1
    return np.asarray(np.clip(room, 0, layers), np.int64)


def _rows(
    found: _Contenders, question: MixedQuestion, *, keeps_unfit: bool = False
) -> Iterator[Planned | None]:
    """Rows as values, with memory exactly; None if one does not fit after all."""
    rows, times, layers_RS = found.rows, found.times, found.layers_RS
    workload, kinds = question.workload, question.kinds
    columns = rows.layouts.take(rows.layout_R)
    numbers = np.arange(rows.stages)[:, None]
    memory = memory_bytes(columns, workload, numbers, layers_RS.T).total.T
    busy, step_s = times.busy_s(layers_RS), times.step_s(layers_RS)
    parts = step_parts_of(times, layers_RS)
    rules = plan_only_by(columns, workload.architecture, workload.sequence_length)
    for i, layout in enumerate(columns.layouts()):
        place = int(rows.place_R[i])
        order = rows.orders[place]
        here = stage_kinds(order, kinds, rows.stages)
        limits = [min(kinds[k].memory_bytes for k in some) for some in here]
        is_over = (memory[i] > (1 - question.headroom) * np.array(limits)).any()
        if is_over and not keeps_unfit:
            yield None
            continue
        counts = tuple(order.count(k) for k in range(len(kinds)))
        split = tuple(layers_RS[i].tolist()) if rows.stages > 1 else None
        size = layout.world_size // rows.stages
        stages = tuple(
            StagePlan(
                ranks=range(s * size, (s + 1) * size),
                kinds=some,
                layers=int(layers_RS[i, s]),
                micro_batch_s=float(busy[i, s]),
                peak_bytes=float(memory[i, s]),
                limit_bytes=limits[s],
            )
            for s, some in enumerate(here)
        )
        tightest = tightest_stage(stages)
        yield Planned(
            counts=counts,
            order=order,
            layout=replace(layout, pipeline_split=split),
            stages=stages,
            peak_bytes=tightest.peak_bytes,
            limit_bytes=tightest.limit_bytes,
            plan_only_by=rules[i],
            step_s=float(step_s[i]),
            parts=tuple((name, float(seconds[i])) for name, seconds in parts),
            usd_per_hour=usd_per_hour(kinds, counts),
            verdict=verdict(tightest.peak_bytes, tightest.limit_bytes),
        )


def step_parts_of(times: StageSeconds, layers_RS: Ints) -> tuple[tuple[str, Floats], ...]:
    """Seconds that add up to a step: stages at work in the mean, waiting, and what follows."""
    busy = times.busy_s(layers_RS).mean(axis=1) * times.count_R
    running, rest = times.parts_s(layers_RS)
    return (
        ("compute", busy),
        ("bubble", running - busy - times.fill_s_R),
        ("sends", times.fill_s_R),
        ("gradients", rest - times.after_s_R - times.host_s_R),
        ("embeddings", times.after_s_R),
        ("host", times.host_s_R),
    )
