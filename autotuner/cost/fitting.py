"""Fit of a layout, and the smallest changes that would make it fit."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.core import (
    OPTIMIZER_STATES,
    Framework,
    Layout,
    Loss,
    Offload,
    Optimizer,
    Recompute,
    Workload,
)

from ..space import Bools, Floats, Ints
from .activations import activation_bytes
from .hardware import Machine
from .layout_columns import ALL_LAYERS, LayoutColumns
from .layout_rules import LayoutRule, rows_obeying
from .memory import MEMORY_BAND, peak_bytes
from .model_state import RankWeights, rank_weights_of, resting_bytes, weights_at_rest
from .pipeline import Stages, stages_of_peak
from .software import Abilities
from .weights import ModelWeights, model_weights

_MOST_CHANGES = 3
_SHOWN = 10
_KINDS = ("pipeline", "context", "expert")


class Verdict(str, Enum):
    """An answer with its doubt."""

    YES = "yes"
    MARGINAL = "marginal"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A layout of a workload, as asked for or changed."""

    layout: Layout
    workload: Workload
    recompute_layers: int = ALL_LAYERS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    """Limits of the smallest node.

    Attributes:
        device_bytes: memory of its smallest GPU.
        gpus: most tensor-parallel ranks to propose.
        host_bytes: memory besides its GPUs'; None if it is not known.
    """

    device_bytes: float
    gpus: int
    host_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Changes that make it fit.

    Attributes:
        changes: settings to change, such as ``recompute=full``.
        peak_bytes: memory that the fullest rank then needs.
        step_s: seconds of a step with them; None if no time model covers it.
        host_bytes: host memory that a node then needs.
    """

    changes: tuple[str, ...]
    proposal: Proposal
    peak_bytes: float
    verdict: Verdict
    step_s: float | None = None
    host_bytes: float = 0.0


Change: TypeAlias = Callable[[Proposal], tuple[Proposal, str] | None]
"""A changed proposal and the new setting; None if impossible."""


def verdict(needed_bytes: float, limit_bytes: float) -> Verdict:
    """Yes if it fits even at the band's upper end, no if it is above the limit."""
    if needed_bytes * (1 + MEMORY_BAND) <= limit_bytes:
        return Verdict.YES
    return Verdict.MARGINAL if fits(np.asarray(needed_bytes), limit_bytes) else Verdict.NO


def fits(needed_bytes_C: Floats, limit_bytes: float) -> Bools:
    """Layouts whose verdict is not no."""
    return np.asarray(needed_bytes_C <= limit_bytes)


def remedies(
    asked: Proposal,
    limits: NodeLimits,
    seconds: Callable[[Sequence[Proposal]], Sequence[float | None]] | None = None,
    rules: Sequence[LayoutRule] = (),
    *,
    splits: bool = True,
    has: Abilities | None = None,
) -> tuple[Remedy, ...]:
    """The fewest changes that fit safely, and fewer changes that may fit; empty if three do not.

    Changes that save least memory are taken, the fastest first. A trainer that shards by a
    setting, without Megatron's split layers, also gets the fewest besides ZeRO 3.

    ``splits``: whether new tensor-parallel ranks share out the sequence, if they can. ``has``: the
    trainer's abilities, among which are changes of the loss, the update and the optimizer.
    """
    found: list[Remedy] = []
    changes = (*_changes(splits), *(() if has is None else _of_training(has)))
    if asked.workload.software.framework is not Framework.MEGATRON:
        found = _fewest_changes(asked, limits, _zero_3_choices, rules)
    every = _fewest_changes(asked, limits, partial(itertools.combinations, changes), rules)
    known = [remedy.proposal for remedy in found]
    shown = [*found, *(one for one in every if one.proposal not in known)][:_SHOWN]
    times = seconds([remedy.proposal for remedy in shown]) if seconds else ()
    timed = itertools.zip_longest(shown, times)
    priced = (replace(remedy, step_s=step_s) for remedy, step_s in timed)
    return tuple(sorted(priced, key=_seconds))


def _fewest_changes(
    asked: Proposal,
    limits: NodeLimits,
    choices: Callable[[int], Iterable[Sequence[Change]]],
    rules: Sequence[LayoutRule],
) -> list[Remedy]:
    """Remedies of as few changes as fit safely; ``choices`` lists candidates by their number."""
    found: list[Remedy] = []
    for number in range(1, _MOST_CHANGES + 1):
        found += _remedies_of(asked, limits, choices(number), rules)
        if any(remedy.verdict is Verdict.YES for remedy in found):
            break
    return found


def _zero_3_choices(number: int) -> Iterable[Sequence[Change]]:
    """ZeRO 3 and other changes that leave each rank the same part of the model."""
    return ((_zero(3), *more) for more in itertools.combinations(_OF_A_RANK, number - 1))


def _seconds(remedy: Remedy) -> float:
    return math.inf if remedy.step_s is None else remedy.step_s


def _remedies_of(
    asked: Proposal,
    limits: NodeLimits,
    choices: Iterable[Sequence[Change]],
    rules: Sequence[LayoutRule],
) -> list[Remedy]:
    """The ``choices`` that fit; only the safe ones, if there are any."""
    changed = [_apply_changes(asked, chosen) for chosen in choices]
    tried = [(proposal, labels) for proposal, labels in changed if proposal and _distinct(labels)]
    groups: dict[Workload, list[tuple[Proposal, tuple[str, ...]]]] = {}
    for proposal, labels in tried:
        groups.setdefault(proposal.workload, []).append((proposal, labels))
    found = [one for same in groups.values() for one in _fitting(asked, limits, same, rules)]
    kept = [remedy for remedy in found if remedy.verdict is Verdict.YES] or found
    return sorted(kept, key=lambda remedy: -remedy.peak_bytes)


def _fitting(
    asked: Proposal,
    limits: NodeLimits,
    tried: Sequence[tuple[Proposal, tuple[str, ...]]],
    rules: Sequence[LayoutRule],
) -> list[Remedy]:
    """The proposals of one workload that fit, by their labels."""
    workload = tried[0][0].workload
    columns = LayoutColumns.from_layouts(
        [proposal.layout for proposal, _ in tried],
        [proposal.recompute_layers for proposal, _ in tried],
    )
    wide = columns.tensor_C > max(limits.gpus, asked.layout.tensor_parallel)
    model, sequence = asked.workload.architecture, asked.workload.sequence_length
    possible = rows_obeying(columns, model, sequence) & ~wide
    for rule in rules:
        possible &= rule.keep(columns, model, sequence)
    if workload.updates_in_backward:
        possible &= columns.accumulation_C == 1
    peaks = peak_bytes(columns, workload)
    hosts = host_bytes(columns, workload, limits.gpus)
    possible &= hosts <= (np.inf if limits.host_bytes is None else limits.host_bytes)
    return [
        Remedy(
            changes=labels,
            proposal=proposal,
            peak_bytes=float(peak),
            verdict=answer,
            host_bytes=float(host),
        )
        for (proposal, labels), peak, host, can_be in zip(
            tried, peaks, hosts, possible, strict=True
        )
        if can_be and (answer := verdict(float(peak), limits.device_bytes)) is not Verdict.NO
    ]


def _apply_changes(
    asked: Proposal, chosen: Sequence[Change]
) -> tuple[Proposal | None, tuple[str, ...]]:
    proposal, labels = asked, []
    for change in chosen:
        changed = change(proposal)
        if changed is None:
            return None, ()
        proposal, label = changed
        labels.append(label)
    return proposal, tuple(labels)


def _distinct(labels: Sequence[str]) -> bool:
    """True if no knob is changed twice."""
    knobs = [label.partition("=")[0] for label in labels]
    return len(set(knobs)) == len(knobs)


def _with_fields(proposal: Proposal, label: str, **fields: Any) -> tuple[Proposal, str]:
    return replace(proposal, layout=replace(proposal.layout, **fields)), label


def _micro_batch(size_of: Callable[[int], int | None]) -> Change:
    """A micro-batch by the size so far, the global batch kept; None: there is no such size."""

    def change(proposal: Proposal) -> tuple[Proposal, str] | None:
        layout = proposal.layout
        if (size := size_of(layout.micro_batch)) is None:
            return None
        steps = layout.accumulation * (layout.micro_batch // size)
        return _with_fields(proposal, f"micro-batch={size}", micro_batch=size, accumulation=steps)

    return change


def _recompute(kind: Recompute) -> Change:
    order = tuple(Recompute)

    def change(proposal: Proposal) -> tuple[Proposal, str] | None:
        some = proposal.recompute_layers != ALL_LAYERS and kind is Recompute.FULL
        if order.index(proposal.layout.recompute) >= order.index(kind) and not some:
            return None
        everywhere = replace(proposal, recompute_layers=ALL_LAYERS)
        return _with_fields(everywhere, f"recompute={kind.value}", recompute=kind)

    return change


def _sequence_parallel(proposal: Proposal) -> tuple[Proposal, str] | None:
    layout = proposal.layout
    if layout.sequence_parallel or layout.tensor_parallel < 2:
        return None
    return _with_fields(proposal, "sequence-parallel=true", sequence_parallel=True)


def _zero(stage: int) -> Change:
    def change(proposal: Proposal) -> tuple[Proposal, str] | None:
        layout = proposal.layout
        if layout.zero_stage >= stage or layout.data_parallel * layout.context_parallel == 1:
            return None
        return _with_fields(proposal, f"zero={stage}", zero_stage=stage)

    return change


def can_split_sequence(layout: Layout, workload: Workload) -> bool:
    """True if tensor-parallel ranks can share out the sequence, as all trainers have them do."""
    parts = layout.tensor_parallel * layout.context_parallel
    return layout.tensor_parallel > 1 and workload.sequence_length % parts == 0


def _tensor(factor: int, splits: bool) -> Change:
    """More tensor-parallel ranks; new ones share out the sequence if ``splits``."""
    widen = _degree("tensor_parallel", "tp", factor)

    def change(proposal: Proposal) -> tuple[Proposal, str] | None:
        widened = widen(proposal)
        if widened is None or proposal.layout.tensor_parallel > 1:
            return widened
        wider, label = widened
        is_split = splits and can_split_sequence(wider.layout, wider.workload)
        return _with_fields(wider, label, sequence_parallel=is_split)

    return change


def _degree(knob: str, flag: str, factor: int) -> Change:
    """More ranks for one degree, the global batch kept.

    They are taken from data parallelism, but expert ranks are data-parallel ranks themselves.
    """
    taken = 1 if knob == "expert_parallel" else factor

    def change(proposal: Proposal) -> tuple[Proposal, str] | None:
        layout = proposal.layout
        if layout.data_parallel % taken:
            return None
        fields = {
            knob: getattr(layout, knob) * factor,
            "data_parallel": layout.data_parallel // taken,
            "accumulation": layout.accumulation * taken,
        }
        return _with_fields(proposal, f"{flag}={fields[knob]}", **fields)

    return change


def _offload(proposal: Proposal) -> tuple[Proposal, str] | None:
    away = proposal.layout.offload is Offload.NONE
    place = Offload.OPTIMIZER if away else Offload.NONE
    return _with_fields(proposal, f"offload={place.value}", offload=place)


_OF_A_RANK: tuple[Change, ...] = (
    _micro_batch(lambda size: None if size % 2 else size // 2),
    _micro_batch(lambda size: None if size < 3 else 1),
    *(_recompute(kind) for kind in (Recompute.SELECTIVE, Recompute.FULL)),
)


def _changes(splits: bool) -> tuple[Change, ...]:
    return (
        *_OF_A_RANK,
        _sequence_parallel,
        *(_zero(stage) for stage in (1, 2, 3)),
        *(_tensor(factor, splits) for factor in (2, 4, 8)),
        *(
            _degree(f"{kind}_parallel", f"{kind[0]}p", factor)
            for kind in _KINDS
            for factor in (2, 4, 8)
        ),
        _offload,
    )


def _of_training(has: Abilities) -> Iterator[Change]:
    """Changes of loss, offload, update and optimizer that a trainer has, the cheapest first."""
    yield from (_loss(kind) for kind in Loss if kind in has.losses and kind is not Loss.WHOLE)
    if Offload.ACTIVATIONS in has.offload:
        yield _offload_activations
    if has.in_backward:
        yield _update_in_backward
    if has.eight_bit_states:
        yield _page_optimizer


def _loss(kind: Loss) -> Change:
    order = tuple(Loss)

    def change(proposal: Proposal) -> tuple[Proposal, str] | None:
        workload = proposal.workload
        if order.index(workload.loss or workload.software.loss) >= order.index(kind):
            return None
        return replace(proposal, workload=replace(workload, loss=kind)), f"loss={kind.value}"

    return change


def _offload_activations(proposal: Proposal) -> tuple[Proposal, str] | None:
    if proposal.layout.offload is not Offload.NONE:
        return None
    place = Offload.ACTIVATIONS
    return _with_fields(proposal, f"offload={place.value}", offload=place)


def _update_in_backward(proposal: Proposal) -> tuple[Proposal, str] | None:
    if proposal.workload.updates_in_backward:
        return None
    workload = replace(proposal.workload, updates_in_backward=True)
    return replace(proposal, workload=workload), "update-in-backward=true"


def _page_optimizer(proposal: Proposal) -> tuple[Proposal, str] | None:
    """The same optimizer with values that leave the GPU when memory is short."""
    name = f"paged_{proposal.workload.optimizer.name}"
    if name not in OPTIMIZER_STATES:
        return None
    workload = replace(proposal.workload, optimizer=Optimizer.from_name(name))
    return replace(proposal, workload=workload), f"optimizer={name}"


def uses_host(columns: LayoutColumns, workload: Workload) -> bool:
    """True if a layout keeps anything in host memory."""
    return workload.optimizer.is_paged or bool(columns.offload_C.any())


def host_bytes(columns: LayoutColumns, workload: Workload, gpus_per_node: int) -> Floats:
    """Host memory of the fullest node for what is offloaded; 0 if nothing is.

    A node has as many ranks as the fullest node, and no more than all ranks together.
    """
    weights = model_weights(workload.architecture)
    leading = weights.encoder_layers + weights.dense_layers
    layers = leading + weights.repeated_layers

    def each(stages: Ints, layouts: LayoutColumns) -> Floats:
        looked_at = Stages.of(stages, layouts, layers, schedule=workload.software.schedule)
        counts = rank_weights_of(weights, workload, layouts, looked_at)
        moved_SC = _offloaded_bytes(workload, weights, layouts.in_sequences(workload), looked_at)
        rank_SC = _host_rank_bytes(counts, layouts, workload) + moved_SC
        return np.asarray(rank_SC.max(axis=0))

    fullest_C = each(stages_of_peak(columns, leading, layers), columns)
    one_stage = replace(columns, pipeline_C=np.ones_like(columns.pipeline_C), given_C3=None)
    ranks_C = columns.shards_C * columns.tensor_C
    all_C = each(np.zeros_like(columns.pipeline_C)[None], one_stage) * ranks_C
    node_C = np.minimum(gpus_per_node * fullest_C, all_C)
    return np.asarray(np.where(columns.are_activations_away_C, gpus_per_node * fullest_C, node_C))


def _host_rank_bytes(counts: RankWeights, columns: LayoutColumns, workload: Workload) -> Floats:
    """Bytes of a rank in host memory; 0 if nothing is offloaded.

    Source:
        Ren et al. 2021, "ZeRO-Offload", section 4: optimizer state and gradients, 16 bytes a
        weight with Adam; offloaded weights in 16 bits are 2 more. DeepSpeed's documentation,
        "Memory Requirements", has the same 16 and 18, times 1.5 for buffers, which is not here.
    """
    away_C = columns.are_states_away_C
    updated_SC = resting_bytes("host", counts.trained, columns, workload) * away_C
    if workload.optimizer.is_paged:
        paged_SC = resting_bytes("state", counts.trained, columns, workload)
        updated_SC = np.where(away_C, updated_SC, paged_SC)
    weights_away_C = columns.are_weights_away_C & (columns.zero_stage_C == 3)
    return np.asarray(updated_SC + weights_away_C * weights_at_rest(counts, columns, workload))


def _offloaded_bytes(
    workload: Workload, weights: ModelWeights, columns: LayoutColumns, stages: Stages
) -> Floats:
    """Activations of each stage that are in host memory; 0 if none are."""
    if not columns.are_activations_away_C.any():
        return np.zeros(())
    here = replace(columns, offload_C=np.zeros_like(columns.offload_C))
    every, left = (activation_bytes(workload, weights, one, stages) for one in (here, columns))
    return every.held_SC - left.held_SC


def activation_transfer_s(
    columns: LayoutColumns, workload: Workload, machine: Machine, passes_s_C: tuple[Floats, Floats]
) -> Floats:
    """Offloaded activations on the host link, beyond the pass that hides each direction.

    ``passes_s_C``: forward and backward passes of a micro-batch on a stage.
    """
    if not columns.are_activations_away_C.any():
        return np.zeros(())
    weights = model_weights(workload.architecture)
    layers = weights.encoder_layers + weights.dense_layers + weights.repeated_layers
    first = Stages.of(np.zeros_like(columns.pipeline_C)[None], columns, layers)
    moved_SC = _offloaded_bytes(workload, weights, columns, first)
    moved_C = (moved_SC / np.maximum(1.0, first.waiting_SC))[0]
    once_C = moved_C / machine.physics.host_link_bytes_per_s
    exposed_C = sum(np.maximum(0.0, once_C - busy_s_C) for busy_s_C in passes_s_C)
    return np.asarray(exposed_C * columns.accumulation_C)
