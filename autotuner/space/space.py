"""The search space around the user's settings: the choice for each knob, and the candidates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.core import (
    LAYOUT_KNOBS,
    Candidate,
    ConfigError,
    KnobValue,
    Recompute,
    divisors,
    parse_value,
    plural,
)

from . import constraints as rules
from .constraints import RejectedCounts, Rule, apply_rules
from .settings import AutotuningSettings
from .table import ABSENT, LEFT_OUT, Bools, CandidateTable, CodedColumn, concat
from .trial import RECOMPUTE_LAYERS, SCHEDULE_KNOB

_ALL_UP_TO = 16
"""A range of at most this many micro-batches is not thinned."""
_PER_DOUBLING = 3
"""Micro-batches of a longer range, for each time that it doubles."""
MOST_COMBINATIONS = 1_000
"""Most combinations of other knobs for one stage."""
__all__ = ["ChoiceKind", "GlobalBatchRule", "KnobChoice", "SearchSpace", "build_space"]
_BATCH = ("micro_batch", "accumulation")
_DERIVED = ("data_parallel", *_BATCH)


def with_extras(table: CandidateTable, extras: Sequence[KnobChoice]) -> CandidateTable:
    """Each row with the default value of each extra, and with every combination of all values.

    Raises:
        ConfigError: there are more than ``MOST_COMBINATIONS`` for a stage.
    """
    if not extras:
        return table
    stages = sorted(set(table["zero_stage"].tolist()))
    return concat([_of_stage(table, extras, stage) for stage in stages])


def usual_rows(table: CandidateTable, extras: Sequence[KnobChoice]) -> Bools:
    """Rows in which each extra has its default value."""
    usual = np.ones(len(table), np.bool_)
    for choice in extras:
        here = _is_for(table, choice)
        idle = (table[choice.knob] == ABSENT) & (choice.knob == RECOMPUTE_LAYERS)
        usual &= ~here | idle | table.is_value(choice.knob, _cell(choice.usual))
    return usual


def _of_stage(table: CandidateTable, extras: Sequence[KnobChoice], stage: int) -> CandidateTable:
    part = table.take(table["zero_stage"] == stage)
    here = [choice for choice in extras if choice.is_for(stage) and choice.values]
    for name in {choice.knob for choice in extras} - {choice.knob for choice in here}:
        part = part.with_values(name, [LEFT_OUT] * len(part))
    count = math.prod(len(choice.values) for choice in here)
    if count > MOST_COMBINATIONS:
        names = ", ".join(choice.knob for choice in here)
        raise ConfigError(
            f"The lists of {names} make {count} combinations for ZeRO stage {stage}, but at most "
            f"{MOST_COMBINATIONS} are searched; shorten them."
        )
    usual = combined = part
    for choice in here:
        usual = usual.with_values(choice.knob, [_cell(choice.usual)] * len(usual))
        combined = combined.cross(choice.knob, [_cell(value) for value in choice.values])
    return concat((usual, combined))


def _is_for(table: CandidateTable, choice: KnobChoice) -> Bools:
    if choice.stages is None:
        return np.ones(len(table), np.bool_)
    return np.isin(table["zero_stage"], choice.stages)


def _cell(value: KnobValue) -> object:
    return LEFT_OUT if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchSpace:
    """Every candidate but the baseline, ordered by stage, other knobs and micro-batch.

    Attributes:
        baseline: trial 0, the user's configuration.
        table: the candidates.
        usual_C: rows with the default value of each other knob, which are searched first.
        notes: sentences for the user.
        least_micro_batch: rows below it are meant only for a baseline that ran out of memory.
        rejected: number of candidates that each rule skipped, by name.
    """

    baseline: Candidate
    table: CandidateTable
    usual_C: Bools
    notes: tuple[str, ...] = ()
    least_micro_batch: int = 1
    rejected: RejectedCounts = ()


def build_space(
    baseline: Candidate,
    choices: tuple[KnobChoice, ...],
    rule: GlobalBatchRule,
    settings: AutotuningSettings,
) -> SearchSpace:
    """All that the choices and the batch rule allow.

    An ``accumulation`` choice counts only if it is a list; otherwise it follows from the
    global batch. ``data_parallel`` always follows from the mesh.

    Raises:
        ConfigError: a choice names a value that its knob cannot have.
    """
    extras = extras_of(choices)
    by_knob = {c.knob: parse_choice(c) for c in choices if c not in extras}
    structures = without_idle_knobs(with_extras(_structures(baseline, by_knob), extras))
    table = _with_batches(structures, baseline, by_knob, rule, settings)
    kept = apply_rules(table, _rules(baseline, by_knob, rule))
    table = table.take(kept.keep_C)
    order = [name for name, _ in table.columns if name not in _BATCH]
    table = table.in_order((*order, *_BATCH)).distinct()
    table = table.take(~table.matches(baseline))
    return SearchSpace(
        baseline=baseline,
        table=table,
        usual_C=usual_rows(table, extras),
        notes=_notes(baseline, table, by_knob, rule),
        least_micro_batch=_least_micro_batch(by_knob),
        rejected=kept.rejected,
    )


def _structures(baseline: Candidate, choices: KnobChoices) -> CandidateTable:
    """Every combination of all knobs but the batch split, with data parallelism to match."""
    table = CandidateTable.from_candidates([baseline])
    for knob, choice in choices.items():
        if knob not in _DERIVED and choice.values:
            table = table.cross(knob, choice.values)
    others = table["tensor_parallel"] * table["pipeline_parallel"] * table["context_parallel"]
    ranks = np.maximum(1, baseline.layout.world_size // others)
    return table.with_values("data_parallel", ranks)


def without_idle_knobs(table: CandidateTable) -> CandidateTable:
    """Rows without knobs that have no effect, such as knobs of a pipeline of one stage."""
    single = table["pipeline_parallel"] == 1
    named = single | (table["virtual_pipeline"] > 1)
    idle = (
        ("virtual_pipeline", single, 1),
        ("pipeline_split", single, None),
        (SCHEDULE_KNOB, named, LEFT_OUT),
        ("micro_batch_split", table["data_parallel"] == 1, None),
        (RECOMPUTE_LAYERS, ~table.is_value("recompute", Recompute.FULL), LEFT_OUT),
    )
    for knob, rows, value in idle:
        column = dict(table.columns).get(knob)
        if column is not None and rows.any():
            values = [value if off else _value(column, i) for i, off in enumerate(rows.tolist())]
            table = table.with_values(knob, values)
    return table


def _value(column: CodedColumn, row: int) -> object:
    return LEFT_OUT if column.codes[row] == ABSENT else column.value(row)


def _with_batches(
    table: CandidateTable,
    baseline: Candidate,
    choices: KnobChoices,
    rule: GlobalBatchRule,
    settings: AutotuningSettings,
) -> CandidateTable:
    choice = choices.get("micro_batch", KnobChoice("micro_batch", (), ChoiceKind.PINNED))
    if choice.how in (ChoiceKind.LISTED, ChoiceKind.PINNED):
        sizes: Sequence[object] = choice.values or (baseline.layout.micro_batch,)
    else:
        degrees = sorted(set(table["data_parallel"].tolist()))
        sizes = micro_batches_to_try(baseline.layout.global_batch, degrees, rule, settings)
    table = table.cross("micro_batch", sizes)
    listed = choices.get("accumulation")
    if listed and listed.how is ChoiceKind.LISTED:
        return table.cross("accumulation", listed.values)
    return _with_accumulation(table, baseline, rule)


def _with_accumulation(
    table: CandidateTable, baseline: Candidate, rule: GlobalBatchRule
) -> CandidateTable:
    """The accumulation that makes the global batch; rows that cannot are left to the rules.

    If the batch may change: today's batch if it divides, and the one nearest to the maximum
    (without a maximum, today's accumulation).
    """
    samples = table["micro_batch"] * table["data_parallel"]

    def with_batch(global_batch: int) -> CandidateTable:
        return table.with_values("accumulation", np.maximum(1, global_batch // samples))

    if rule.pinned is not None:
        return with_batch(rule.pinned)
    today = with_batch(baseline.layout.global_batch)
    keeps = today.global_batch_C == baseline.layout.global_batch
    other = table if rule.maximum is None else with_batch(rule.maximum)
    return concat((today.take(keeps), other))


def _rules(baseline: Candidate, choices: KnobChoices, rule: GlobalBatchRule) -> tuple[Rule, ...]:
    found = [
        rules.mesh_equation(baseline.layout.world_size),
        rules.sequence_needs_tensor(),
        rules.experts_on_data_ranks(),
        rules.micro_batches_for_stages(),
        rules.parts_for_splits(),
        rules.replicas_for_buckets(),
        rules.shards_divide_ranks(),
    ]
    stage = choices.get("zero_stage")
    if stage is not None and stage.how is ChoiceKind.FREE:
        found.append(rules.zero_needs_data_parallel())
    if rule.pinned is not None:
        found.append(rules.pinned_global_batch(rule.pinned))
    elif rule.maximum is not None:
        found.append(rules.largest_global_batch(rule.maximum))
    return tuple(found)


def _least_micro_batch(choices: KnobChoices) -> int:
    choice = choices.get("micro_batch")
    if choice is None or choice.how is not ChoiceKind.MINIMUM or not choice.values:
        return 1
    least = choice.values[0]
    return least if isinstance(least, int) else 1


def _notes(
    baseline: Candidate, kept: CandidateTable, choices: KnobChoices, rule: GlobalBatchRule
) -> tuple[str, ...]:
    """Sentences on listed micro-batches that were skipped, and on a search without any."""
    choice = choices.get("micro_batch")
    if choice is None:
        return ()
    sizes = {baseline.layout.micro_batch, *kept["micro_batch"].tolist()}
    if skipped := _on_skipped(choice, sizes, baseline, rule):
        return (skipped,)
    sizes = {size for size in sizes if size >= _least_micro_batch(choices)}
    fixed = choice.how in (ChoiceKind.PINNED, ChoiceKind.LISTED)
    if rule.pinned is None or len(sizes) != 1 or fixed:
        return ()
    least = _least_micro_batch(choices)
    among = f" of those from {least} up" if least > 1 else ""
    return (
        f"A global batch of {rule.pinned} on {_ranks(baseline)} leaves only micro-batch "
        f"{min(sizes)}{among}; {rule.flag} searches others.",
    )


def _on_skipped(
    choice: KnobChoice, sizes: set[int], baseline: Candidate, rule: GlobalBatchRule
) -> str:
    gone = [value for value in choice.values if value not in sizes]
    if choice.how is not ChoiceKind.LISTED or not gone:
        return ""
    verb, them = ("is", "it") if len(gone) == 1 else ("are", "them")
    what = f"Micro-batch {', '.join(map(str, gone))} of your list {verb} skipped: "
    ranks = _ranks(baseline)
    if rule.pinned is None:
        return f"{what}over max_train_batch_size {rule.maximum} on {ranks}."
    return (
        f"{what}no accumulation gives a global batch of {rule.pinned} with {them} on {ranks}; "
        f"{rule.flag} searches other batches."
    )


def _ranks(baseline: Candidate) -> str:
    return plural(baseline.layout.data_parallel, "data-parallel rank")


class ChoiceKind(str, Enum):
    """The user's choice for a knob."""

    PINNED = "pinned"
    """A single value, or none named: the baseline's."""
    LISTED = "listed"
    """The values of a list, taken as they are."""
    MINIMUM = "minimum"
    """Micro-batch only: search from this value up (below it only if it does not fit)."""
    FREE = "free"
    """Nothing said: our own values."""


@dataclass(frozen=True, slots=True)
class KnobChoice:
    """The values of one canonical knob that may be searched; a knob without one is pinned.

    An extra may have a choice for each stage. Its default value, with which micro-batches are
    searched first, is the first of a pinned or listed one; a free one is usually skipped.

    Attributes:
        knob: field of ``Layout``, or name of an extra.
        values: as the knob has them, in the order of the search; None omits an extra.
        how: how the user left it.
        stages: ZeRO stages that an extra's choice is for; None: all. Elsewhere it is skipped.
        origin: source of the values, for people.
    """

    knob: str
    values: tuple[Any, ...]
    how: ChoiceKind
    stages: tuple[int, ...] | None = None
    origin: str = field(default="", compare=False)

    def is_for(self, zero_stage: int) -> bool:
        """True if it says something of this stage."""
        return self.stages is None or zero_stage in self.stages

    @property
    def usual(self) -> Any:
        """The value of an extra while only micro-batches are searched; None: skipped."""
        return None if self.how is ChoiceKind.FREE or not self.values else self.values[0]


KnobChoices: TypeAlias = Mapping[str, KnobChoice]


def extras_of(choices: Sequence[KnobChoice]) -> tuple[KnobChoice, ...]:
    """Choices of knobs that do not belong to a layout."""
    return tuple(choice for choice in choices if choice.knob not in LAYOUT_KNOBS)


def parse_choice(choice: KnobChoice) -> KnobChoice:
    """A choice with each value as its knob has it.

    Raises:
        ConfigError: the knob cannot have a value.
    """
    values = tuple(parse_value(choice.knob, value) for value in choice.values)
    return replace(choice, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalBatchRule:
    """The permitted changes of the samples of an optimizer step.

    Attributes:
        pinned: it stays this; weighs more than ``maximum``.
        maximum: consent to any up to this. With neither of them there is no limit.
        flag: the launcher's flag that gives consent, for messages.
    """

    pinned: int | None = None
    maximum: int | None = None
    flag: str = "--allow-global-batch-change"


def micro_batches_to_try(
    today: int,
    data_parallel: Sequence[int],
    rule: GlobalBatchRule,
    settings: AutotuningSettings,
) -> tuple[int, ...]:
    """Micro-batches in ascending order, within the bounds of the settings.

    A pinned global batch admits its divisors, all of them. Otherwise a long range is thinned
    evenly by ratio, and what divides today's batch is kept. ``num_tuning_micro_batch_sizes`` is
    not about this range: it counts the best of them, whose other knobs are tuned (phases).

    Args:
        today: global batch of the baseline.
        data_parallel: degrees that occur in the space.
        rule: the allowed changes of the global batch.
        settings: bounds.
    """
    least = settings.min_train_micro_batch_size_per_gpu
    most = settings.max_train_micro_batch_size_per_gpu
    kept = rule.pinned or today
    exact = {b for ranks in data_parallel if kept % ranks == 0 for b in divisors(kept // ranks)}
    if rule.pinned is not None:
        return tuple(b for b in sorted(exact) if least <= b <= most)
    if rule.maximum is not None:
        most = min(most, rule.maximum // min(data_parallel))
    wanted = exact | set(_thin_out(least, most))
    return tuple(b for b in sorted(wanted) if least <= b <= most)


def _thin_out(least: int, most: int) -> tuple[int, ...]:
    """The whole range, or, if it is long, a geometric series down from the largest."""
    if most - least < _ALL_UP_TO:
        return tuple(range(least, most + 1))
    steps = _PER_DOUBLING * most.bit_length()
    return tuple(round(most * 2 ** (-k / _PER_DOUBLING)) for k in range(steps))
