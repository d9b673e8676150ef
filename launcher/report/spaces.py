"""The answer of ``show spaces``: knobs of a search, and the source of each value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autoconf_launch.autotuner.search import Grouping
from autoconf_launch.autotuner.space import ChoiceKind

from ..spelling import UserSettings
from .summary import SCHEMA_VERSION
from .tables import each, rows_documents, rows_text

_ONLY_DEEPSPEED = (
    "Read as a DeepSpeed configuration, since our own runtime does not have all of its keys; "
    "give the script too, to see what a tune of it searches."
)
_NO_BATCH = "It sets no batch, so that a micro-batch of 1 without accumulation is assumed."
_AWAITS_PROFILE = (
    "A tune learns from its profile run what nothing here sets; it may search more micro-batches."
)
_TOGETHER = (
    'All stages are explored together, best prediction first; "strategy": "staged" under '
    '"autotuning" goes stage by stage.'
)
_STAGED = (
    "Stages are explored one after the other, each as long as the one before was better; "
    '"strategy": "global" explores all together.'
)
_FAST = (
    'The shipped lists of further knobs are skipped by "fast": true; --fast=false\n'
    "searches them, too.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRow:
    """A knob of a stage; ``values`` as a document has them."""

    name: str
    values: tuple[Any, ...]
    how: ChoiceKind
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """The search at a ZeRO stage; ``combinations`` counts the other knobs."""

    stage: int
    micro_batches: tuple[int, ...]
    combinations: int
    knobs: tuple[KnobRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacesAnswer:
    """A search before it runs.

    Attributes:
        notes: on how the configuration was read.
        space_notes: on the space, as long as no profile run is awaited.
        as_deepspeed: our own runtime lacks keys of the configuration.
        lacks_batch: the configuration sets no batch.
    """

    user: UserSettings
    stages: tuple[StageView, ...] = ()
    notes: tuple[str, ...] = ()
    space_notes: tuple[str, ...] = ()
    as_deepspeed: bool = False
    lacks_batch: bool = False

    @property
    def is_staged(self) -> bool:
        return Grouping.of_settings(self.user.settings).staged

    @property
    def stages_from(self) -> str | None:
        """Origin of the list of stages; None if only one is searched."""
        origins = (choice.origin for choice in self.user.choices if choice.knob == "zero_stage")
        return next(origins, None)


def _comma_list(values: Sequence[Any]) -> str:
    return ", ".join(v if isinstance(v, str) else json.dumps(v) for v in values)


def _values_text(row: KnobRow) -> str:
    return f"{_comma_list(row.values)}{' and up' if row.how is ChoiceKind.MINIMUM else ''}"


KNOB_COLUMNS = (
    each("name", "", "knob", is_left=True),
    each("values", lambda a, row: [*row.values]),
    each("", lambda a, row: row, "values", _values_text, is_left=True),
    each("how", "how.value"),
    each("from", "origin", "from", is_left=True),
)


def _notes(answer: SpacesAnswer) -> Iterator[str]:
    yield from answer.notes
    if answer.as_deepspeed:
        yield _ONLY_DEEPSPEED
    if answer.lacks_batch:
        yield _NO_BATCH
    yield from (_AWAITS_PROFILE,) if answer.user.awaits_profile else answer.space_notes
    yield _STAGED if answer.is_staged else _TOGETHER


def spaces_text(answer: SpacesAnswer) -> str:
    """The course of the search, a table for each stage, and notes."""
    lines = [_flow(answer), ""]
    for view in answer.stages:
        lines.append(_stage_line(view, answer.user.settings.num_tuning_micro_batch_sizes))
        if view.knobs:
            lines += [f"  {line}" for line in rows_text(KNOB_COLUMNS, view.knobs).splitlines()]
        lines.append("")
    if answer.user.settings.fast:
        lines.append(_FAST.rstrip())
    return "\n".join([*lines, *dict.fromkeys(_notes(answer))]).rstrip()


def _flow(answer: SpacesAnswer) -> str:
    settings, origin = answer.user.settings, answer.stages_from
    order, each_one = ("in this order, ", " each") if answer.is_staged else ("together, ", "")
    several = len(answer.stages) > 1
    listed = _comma_list([view.stage for view in answer.stages])
    searched = f"ZeRO stage{'s' * several} {listed} ({origin}), {order if several else ''}"
    if origin is None:
        searched, each_one = "Searched ", ""
    return (
        f"{searched}by {settings.metric} with {settings.tuner_type}; at most "
        f"{settings.tuner_num_trials} trials{each_one}, "
        f"{settings.patience} in a row without a better one end a phase."
    )


def _stage_line(view: StageView, most_sizes: int) -> str:
    further = ""
    if view.combinations > 1:
        further = (
            f", then {view.combinations} combinations of further knobs for each of the best "
            f"{min(most_sizes, len(view.micro_batches))}"
        )
    return f"stage {view.stage}: micro-batches {_comma_list(view.micro_batches)}{further}"


def spaces_document(answer: SpacesAnswer) -> dict[str, Any]:
    """The JSON document."""
    rule = answer.user.batch_rule
    return {
        "schema_version": SCHEMA_VERSION,
        "settings": answer.user.settings.model_dump(mode="json"),
        "global_batch": {"pinned": rule.pinned, "maximum": rule.maximum},
        "stages_from": answer.stages_from,
        "stages": [
            {
                "stage": view.stage,
                "micro_batches": list(view.micro_batches),
                "combinations": view.combinations,
                "knobs": rows_documents(KNOB_COLUMNS, view.knobs),
            }
            for view in answer.stages
        ],
        "notes": [*dict.fromkeys(_notes(answer))],
    }
