"""The best layout on each part of a mixed cluster, and the changes that would alter the choice."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.cost import LayoutColumns, LayoutRule
from autoconf_launch.autotuner.mixed import (
    MIXED_DEGREES,
    Choice,
    ChoiceRule,
    MachineKind,
    MeasuredLayers,
    MixedQuestion,
    PriceRange,
    every_row,
    mixed_plan,
    price_range,
    rivals,
    rotations,
)
from autoconf_launch.autotuner.planner import Plan, Planned, StepBand, leading, time_band
from autoconf_launch.core import (
    Architecture,
    ClusterSpec,
    ConfigError,
    Layout,
    NodeKind,
    Workload,
    pareto_front,
)
from autoconf_launch.tuning_spaces import known_accelerator

from ..asked import Goal
from ..input_file import input_text
from .clusters import ChosenPrice, check_training, chosen_prices, machine_of, one_node
from .requests import PlanRequest, TrainingRequest
from .trainers import has_uneven, ranking_rules

NETWORK_FACTORS = (0.5, 2.0)
"""Rates of all networks between nodes, over the question's rates, that may change a choice."""
_LAYER_COLUMNS = ("model", "gpu", "tp", "layer_index", "fwd_time_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSensitivity:
    """Changes that would change the choice of a row.

    Attributes:
        chosen: the row.
        ranges: prices of each kind between which it stays; empty if a price is unknown.
        band: error of predicted steps; ``rivals`` are rows that it could put first.
        networks: the choice for each factor of all networks; empty unless requested.
    """

    chosen: Planned
    ranges: tuple[PriceRange, ...]
    band: float
    rivals: tuple[Planned, ...]
    networks: tuple[tuple[float, Planned | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedParts:
    """More facts of a cluster whose parts are ranked, stage by stage.

    Attributes:
        question: the search; its headroom is 0 if no layout leaves the requested share.
        choice: order of the rows.
        every: the best layout of each part, within the limits or not, the fastest first.
        sensitivity: changes of the choice; None if nothing is within the limits.
    """

    question: MixedQuestion
    choice: Choice
    every: tuple[Planned, ...]
    sensitivity: ChoiceSensitivity | None

    @property
    def whole(self) -> Planned | None:
        counts = tuple(kind.count for kind in self.question.kinds)
        return next((row for row in self.every if row.counts == counts), None)

    def band(self, row: Planned) -> StepBand:
        kinds = [self.question.kinds[kind] for kind in sorted(set(row.order))]
        bands = [_kind_band(self.question, row.layout, kind) for kind in kinds]
        return max(bands, key=lambda band: band.error)


def _kind_band(question: MixedQuestion, layout: Layout, kind: MachineKind) -> StepBand:
    gpu = kind.machine.accelerator
    return time_band(question.workload, layout, gpu.name, assumed=gpu.assumed)


def rank_parts(
    request: PlanRequest,
) -> tuple[Plan, RankedParts, tuple[ChosenPrice | None, ...]]:
    """Rank the parts of a cluster whose nodes differ: ``best`` has those within the limits.

    Of the front of time and money it has all, the fastest first, else as many as requested.

    Raises:
        ConfigError: too many parts, a price is missing, or layers of a kind were not measured.
    """
    training = request.training
    check_training(training)
    prices = chosen_prices(request)
    if request.gpus_needed:
        raise ConfigError("--gpus-needed counts nodes of one kind; give a cluster of one node.")
    rules, apart_by = ranking_rules(request)
    question = MixedQuestion(
        workload=training.workload,
        kinds=machine_kinds(training, prices),
        degrees=MIXED_DEGREES,
        headroom=request.headroom,
        rules=rules,
        is_uneven=has_uneven(training),
    )
    if request.layer_times is not None:
        question = _with_layers(question, request.layer_times, training.cluster)
    if request.degrees is not None:
        question = replace(
            question,
            degrees=question.degrees.override(request.degrees),
            order_rule=lambda counts, kinds: rotations(counts),
        )
    found = mixed_plan(question)
    if not found.best and question.headroom:
        question = replace(question, headroom=0.0)
        found = mixed_plan(question)
    choice = _choice(request, has_prices=None not in prices)
    parts = RankedParts(question=question, choice=choice, every=found.best, sensitivity=None)
    every, apart = _usable_first(parts, apart_by)
    rows = choice.rank(every)
    if request.top is None and not request.pareto:
        others = every_candidate(replace(parts, every=every))
        rows = choice.rank(
            [row for row in others if row in every or _is_usable(row, question, apart_by)]
        )
    if request.pareto:
        priced = (row for row in rows if row.usd_per_step is not None)
        rows = tuple(pareto_front(priced, lambda row: (row.step_s, row.usd_per_step or 0.0)))
    sensitivity = _sensitivity(request, question, choice, every)
    return (
        replace(found, best=rows if request.pareto else rows[: request.top], apart=apart),
        replace(parts, every=every, sensitivity=sensitivity),
        prices,
    )


def _usable_first(
    parts: RankedParts, rules: Sequence[LayoutRule]
) -> tuple[tuple[Planned, ...], tuple[Planned, ...]]:
    question, choice, every = parts.question, parts.choice, parts.every
    others = [row for row in every if _breaks(row, rules, question.workload)]
    if not others:
        return every, ()
    usable = mixed_plan(replace(question, rules=(*question.rules, *rules))).best
    if not choice.rank(usable):
        return every, ()
    fastest_s = min(row.step_s for row in usable)
    lead = leading(others, fastest_s, lambda row: parts.band(row).error)
    best = tuple(sorted((*lead, *usable), key=lambda row: row.step_s))
    apart = [row for row in others if row not in lead and row.step_s < best[0].step_s]
    return best, choice.rank(apart)


def _is_usable(row: Planned, question: MixedQuestion, rules: Sequence[LayoutRule]) -> bool:
    """True if a row fits, with the headroom, and breaks none of the rules."""
    is_safe = all(
        one.peak_bytes <= (1.0 - question.headroom) * one.limit_bytes for one in row.stages
    )
    return is_safe and not _breaks(row, rules, question.workload)


def _breaks(row: Planned, rules: Sequence[LayoutRule], workload: Workload) -> bool:
    columns = LayoutColumns.from_layouts([row.layout], [row.recompute_layers])
    sequence = workload.sequence_length
    return not all(rule.keep(columns, workload.architecture, sequence).all() for rule in rules)


def every_candidate(parts: RankedParts) -> tuple[Planned, ...]:
    """All layouts on FASOP's orders of nodes, out of memory or not, and the best of each part."""
    rotated = replace(parts.question, order_rule=lambda counts, kinds: rotations(counts))
    rows: dict[tuple[object, ...], Planned] = {}
    for row in (*every_row(rotated), *parts.every):
        one = row.layout
        degrees = (one.tensor_parallel, one.data_parallel, one.pipeline_parallel)
        rows[row.order, degrees, one.micro_batch] = row
    return tuple(rows.values())


def _with_layers(question: MixedQuestion, path: Path, cluster: ClusterSpec) -> MixedQuestion:
    """Measured layers for each kind, and no tensor ranks but those that were measured on all."""
    gpus = [kind.gpu for kind in cluster.kinds]
    found = read_layer_times(path, question.workload.architecture, set(gpus))
    common = frozenset.intersection(*(frozenset(one.tensor) for one in found.values()))
    if not common:
        raise ConfigError(f"--layer-times {path} has no number of tensor ranks for all GPUs.")
    kinds = [
        replace(kind, measured=found[gpu]) for kind, gpu in zip(question.kinds, gpus, strict=True)
    ]
    degrees = replace(question.degrees, tensor_parallel=tuple(sorted(common)))
    return replace(question, kinds=tuple(kinds), degrees=degrees)


def _choice(request: PlanRequest, *, has_prices: bool) -> Choice:
    longest_s, most_usd = request.budget.step_limits(request.training.workload.batch_tokens)
    wants_cheap = request.objective == Goal.COST
    if "--objective" not in request.training.given:
        wants_cheap = wants_cheap or request.budget.is_only_timed
    return Choice(
        rule=ChoiceRule.CHEAPEST if wants_cheap and has_prices else ChoiceRule.FASTEST,
        longest_s=longest_s,
        most_usd=most_usd,
    )


def _sensitivity(
    request: PlanRequest, question: MixedQuestion, choice: Choice, every: Sequence[Planned]
) -> ChoiceSensitivity | None:
    ranked = choice.rank(every)
    if not ranked:
        return None
    kinds, layout = question.kinds, ranked[0].layout
    band = max(_kind_band(question, layout, kind).error for kind in kinds)
    is_priced = all(kind.usd_per_hour is not None for kind in kinds)
    ranges = [
        price_range(every, choice, kinds, number) for number in range(len(kinds)) if is_priced
    ]
    factors = NETWORK_FACTORS if request.explain else ()
    return ChoiceSensitivity(
        chosen=ranked[0],
        ranges=tuple(one for one in ranges if one is not None),
        band=band,
        rivals=rivals(every, choice, band),
        networks=tuple((factor, _with_networks(question, choice, factor)) for factor in factors),
    )


def _with_networks(question: MixedQuestion, choice: Choice, factor: float) -> Planned | None:
    kinds = []
    for kind in question.kinds:
        rate = kind.machine.node_network_bytes_per_s * factor
        kinds.append(replace(kind, machine=replace(kind.machine, node_network_bytes_per_s=rate)))
    found = mixed_plan(replace(question, kinds=tuple(kinds)))
    return next(iter(choice.rank(found.best)), None)


def machine_kinds(
    training: TrainingRequest, prices: Sequence[ChosenPrice | None]
) -> tuple[MachineKind, ...]:
    """Facts for the search on each kind of a cluster's nodes.

    Args:
        training: cluster, and memory of a GPU if a flag bounds it.
        prices: price of each kind.

    Raises:
        ConfigError: the pipeline's schedule is not 1F1B.
    """
    schedule = training.workload.software.schedule
    if not schedule.interleaves:
        raise ConfigError(
            f"--schedule {schedule.name} is for equal nodes and even stages, but this cluster or "
            "its stages differ; omit it."
        )
    bound = training.limit_bytes if "--memory-limit" in training.given else math.inf
    return tuple(
        _machine_kind(kind, price, bound)
        for kind, price in zip(training.cluster.kinds, prices, strict=True)
    )


def _machine_kind(kind: NodeKind, price: ChosenPrice | None, bound: float) -> MachineKind:
    memory = min(device.memory_bytes for device in kind.node.devices)
    hourly = None if price is None else price.usd_per_gpu_hour * len(kind.node.devices)
    return MachineKind(
        name=kind.name,
        machine=machine_of(one_node(kind.node)),
        count=kind.count,
        memory_bytes=min(memory, bound),
        usd_per_hour=hourly,
    )


@dataclass(frozen=True, slots=True)
class _LayerLine:
    model: str
    gpu: str
    tensor: int
    index: int
    seconds: float


def read_layer_times(
    path: Path, model: Architecture, gpus: Collection[str]
) -> Mapping[str, MeasuredLayers]:
    """Forward passes of one sample for each GPU of a cluster.

    A file may have several models; the model's name must contain the name in the file. The first
    entry is the embedding, the last one the head; in an encoder-decoder, which has no head in such
    files, each half begins with an embedding.

    Raises:
        ConfigError: the file cannot be read, lacks a column, the model or a GPU, or has another
            number of layers.
    """
    lines = _of_model(_read_layers(path), path, model)
    found: dict[str, MeasuredLayers] = {}
    for gpu in sorted(gpus):
        here = [line for line in lines if known_accelerator(line.gpu) == gpu]
        if not here:
            known = ", ".join(sorted({line.gpu for line in lines}))
            raise ConfigError(f"{path} has no layers measured on {gpu}; it has {known}.")
        found[gpu] = _layers(here, path, model)
    return found


def _read_layers(path: Path) -> list[_LayerLine]:
    try:
        reader = csv.DictReader(io.StringIO(input_text(path)))
        rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        not_text = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        why = error.strerror if isinstance(error, OSError) else not_text
        raise ConfigError(f"--layer-times {path} cannot be read: {why}.") from error
    missing = [name for name in _LAYER_COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(
            f"--layer-times {path} lacks the column {missing[0]}; it needs "
            f"{', '.join(_LAYER_COLUMNS)}."
        )
    return [_layer_line(row, path, number) for number, row in rows]


def _layer_line(row: Mapping[str, str | None], path: Path, number: int) -> _LayerLine:
    try:
        tensor, index = int(row["tp"] or ""), int(row["layer_index"] or "")
        seconds = float(row["fwd_time_s"] or "")
    except ValueError as error:
        raise ConfigError(f"{path}, line {number}: {error}; it must be a number.") from error
    if not (0 < seconds < math.inf and tensor > 0 and index >= 0):
        raise ConfigError(f"{path}, line {number}: tp and fwd_time_s must be above 0.")
    gpu = re.sub(r"\s*\(.*\)$", "", row["gpu"] or "")
    return _LayerLine(row["model"] or "", gpu, tensor, index, seconds)


def _of_model(lines: Sequence[_LayerLine], path: Path, model: Architecture) -> list[_LayerLine]:
    names = sorted({line.model for line in lines})
    own = [name for name in names if _plain_name(name) in _plain_name(model.name)] or names
    if len(own) != 1:
        raise ConfigError(
            f"--layer-times {path} has layers of {', '.join(names) or 'no model'}, but the model "
            f"is {model.name}; keep its lines alone."
        )
    return [line for line in lines if line.model == own[0]]


def _plain_name(name: str) -> str:
    return re.sub(r"[-_ .]", "", name.lower())


def _layers(lines: Sequence[_LayerLine], path: Path, model: Architecture) -> MeasuredLayers:
    tensor = sorted({line.tensor for line in lines})
    split = [_split_layers([one for one in lines if one.tensor == n], path, model) for n in tensor]
    first, layer, last = zip(*split, strict=True)
    return MeasuredLayers(tensor=tuple(tensor), first_s=first, layer_s=layer, last_s=last)


def _split_layers(
    lines: Iterable[_LayerLine], path: Path, model: Architecture
) -> tuple[float, float, float]:
    """Embedding, mean layer and head of one GPU and one number of tensor ranks."""
    seconds = [line.seconds for line in sorted(lines, key=lambda line: line.index)]
    layers = model.encoder_layers + model.layers
    if len(seconds) != layers + 2:
        raise ConfigError(
            f"--layer-times {path} has {len(seconds)} entries for a GPU and tp, but {model.name} "
            f"has {layers} layers and 2 ends."
        )
    if model.encoder_layers:
        second = model.encoder_layers + 1
        body = seconds[1:second] + seconds[second + 1 :]
        return seconds[0] + seconds[second], sum(body) / layers, math.nan
    return seconds[0], sum(seconds[1:-1]) / layers, seconds[-1]
