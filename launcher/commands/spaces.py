"""``show spaces``: the knobs of a search and the source of each value. Nothing is run.

``show spaces [--config FILE] [--json] [launcher flags] [script.py arguments]``
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.search import Grouping
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
    ChoiceKind,
    KnobChoice,
    SearchSpace,
    build_space,
)
from autoconf_launch.core import RUNTIME_KNOBS, SPELLED, ZERO, ConfigError, dotted_name
from autoconf_launch.core import config_keys as keys

from ..asked import ShowSpacesCommand
from ..config_file import read_config
from ..dialects import BuiltinDialect, DeepSpeedDialect, choose_dialect
from ..events import Event, Note
from ..flags import parse_request
from ..hosts import find_cluster
from ..launch import find_source
from ..report import SCHEMA_VERSION, each, rows_documents, rows_text
from ..request import LaunchRequest
from ..script import ScriptSource
from ..spelling import UserSettings
from ..tuning import read_job

_NO_SCRIPT = "script.py"
"""Last argument; with a script in the command line it is an argument too many."""
_ONLY_DEEPSPEED = (
    "Read as a DeepSpeed configuration, since our own runtime does not have all of its keys; "
    "give the script too, to see what a tune of it searches."
)
_NO_BATCH = "It sets no batch, so that a micro-batch of 1 without accumulation is assumed."
_MOST_KEYS = 5
_TOGETHER = (
    'All stages are explored together, best prediction first; "strategy": "staged" under '
    '"autotuning" goes stage by stage.'
)
_STAGED = (
    "Stages are explored one after the other, each as long as the one before was better; "
    '"strategy": "global" explores all together.'
)
_AWAITS_PROFILE = (
    "A tune learns from its profile run what nothing here sets; it may search more micro-batches."
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


def show_spaces(arguments: Sequence[str]) -> Iterator[str]:
    """Text to print.

    Raises:
        ConfigError: wrong arguments, or a configuration that cannot mean anything.
    """
    flags, others = ShowSpacesCommand.parser().parse_known_args(list(arguments))
    request = parse_request([*others, _NO_SCRIPT])
    named = ("--config", flags.config) if flags.config else ()
    if not request.script_args:
        source = find_source(named, request.tuning_space)
        if flags.config and source.config_argument is None:
            raise ConfigError(_on_foreign(flags.config))
        user, notes = _of_document(replace(request, autotuning="tune"), source)
    else:
        words = (*request.script_args[:-1], *named)
        user, notes = _of_script(replace(request, autotuning="tune", script_args=words))
    space = build_space(user.baseline, user.choices, user.batch_rule, user.settings)
    stages = tuple(_stage_views(user, space))
    said = (_AWAITS_PROFILE,) if user.awaits_profile else space.notes
    staged = Grouping.of_settings(user.settings).staged
    notes = tuple(dict.fromkeys((*notes, *said, _STAGED if staged else _TOGETHER)))
    yield _json(user, stages, notes) if flags.json else _text(user, stages, notes)


def _on_foreign(path: str) -> str:
    """Why a file that was given as a configuration is not read as one."""
    found = list(read_config(Path(path)).to_dict())
    more = ", …" if len(found) > _MOST_KEYS else ""
    return (
        f"None of the keys of {path} is known ({', '.join(found[:_MOST_KEYS])}{more}); a "
        f"configuration has keys such as {keys.MICRO_BATCH[0]}, {keys.ACCUMULATION[0]} and "
        f"{keys.ZERO_STAGE[0]}. For a script's own file, give the script, too."
    )


def _of_script(request: LaunchRequest) -> tuple[UserSettings, tuple[str, ...]]:
    notes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)

    return read_job(request, listen).user, tuple(notes)


def _of_document(
    request: LaunchRequest, source: ScriptSource
) -> tuple[UserSettings, tuple[str, ...]]:
    source = replace(source, words=request.words)
    named = source.config_argument is not None or request.words.dialect is not None
    dialect = choose_dialect(source).dialect if named else BuiltinDialect()

    ranks = len(find_cluster(request).devices)
    try:
        user = dialect.read(source, world_size=ranks)
    except ConfigError as error:
        if request.words.dialect is not None or source.config_argument is None:
            raise
        try:
            user = DeepSpeedDialect().read(source, world_size=ranks)
        except ConfigError:
            raise error from None
        return user, (*user.notes, *user.warnings, _ONLY_DEEPSPEED)
    batches = (keys.TRAIN_BATCH_SIZE, keys.MICRO_BATCH, keys.ACCUMULATION)
    is_open = source.config_argument is not None and not any(k in source.config for k in batches)
    return user, (*user.notes, *user.warnings, *([_NO_BATCH] if is_open else ()))


def _stage_views(user: UserSettings, space: SearchSpace) -> Iterator[StageView]:
    layouts = [user.baseline.layout, *(space.table.row(int(i)).layout for i in _usual(space))]
    for stage in sorted({layout.zero_stage for layout in layouts}):
        sizes = {layout.micro_batch for layout in layouts if layout.zero_stage == stage}
        here = [choice for choice in user.choices if choice.is_for(stage) and choice.values]
        extras = [choice for choice in here if choice.knob not in SPELLED]
        yield StageView(
            stage=stage,
            micro_batches=tuple(sorted(s for s in sizes if s >= space.least_micro_batch)),
            combinations=math.prod(len(choice.values) for choice in extras),
            knobs=tuple(_row(choice) for choice in here if choice.knob != "zero_stage"),
        )


def _usual(space: SearchSpace) -> Sequence[int]:
    found: list[int] = space.usual_C.nonzero()[0].tolist()
    return found


def _row(choice: KnobChoice) -> KnobRow:
    row = SPELLED.get(choice.knob) or RUNTIME_KNOBS.get(choice.knob)
    foreign = dotted_name((*ZERO, choice.knob)) if choice.stages is not None else choice.knob
    return KnobRow(
        name=row.key if row else foreign,
        values=tuple(_plain(choice.knob, value) for value in choice.values),
        how=choice.how,
        origin=choice.origin,
    )


def _plain(knob: str, value: Any) -> Any:
    """A value as a document has it; an omitted value has its default."""
    if value is None and knob in RUNTIME_KNOBS:
        return RUNTIME_KNOBS[knob].default
    return getattr(value, "value", value)


def _text(user: UserSettings, stages: Sequence[StageView], notes: Sequence[str]) -> str:
    lines = [_flow(user, stages), ""]
    for view in stages:
        lines += [_stage_line(view, user.settings)]
        if view.knobs:
            lines += [f"  {line}" for line in rows_text(KNOB_COLUMNS, view.knobs).splitlines()]
        lines += [""]
    if user.settings.fast:
        lines += ['The shipped lists of further knobs are skipped by "fast": true; --fast=false']
        lines += ["searches them, too."]
    return "\n".join([*lines, *notes]).rstrip()


def _flow(user: UserSettings, stages: Sequence[StageView]) -> str:
    settings, origin = user.settings, _origin_of_stages(user)
    staged = Grouping.of_settings(settings).staged
    order, each = ("in this order, ", " each") if staged else ("together, ", "")
    listed = _comma_list([view.stage for view in stages])
    where = f" ({origin})" if origin else ""
    name, order = ("stages", order) if len(stages) > 1 else ("stage", "")
    searched = "Searched " if origin is None else f"ZeRO {name} {listed}{where}, {order}"
    return (
        f"{searched}by {settings.metric} with {settings.tuner_type}; at most "
        f"{settings.tuner_num_trials} trials{'' if origin is None else each}, "
        f"{settings.tuner_early_stopping} in a row without a better one end a phase."
    )


def _origin_of_stages(user: UserSettings) -> str | None:
    origins = (choice.origin for choice in user.choices if choice.knob == "zero_stage")
    return next(origins, None)


def _stage_line(view: StageView, settings: AutotuningSettings) -> str:
    further = ""
    if view.combinations > 1:
        further = (
            f", then {view.combinations} combinations of further knobs for each of the best "
            f"{min(settings.num_tuning_micro_batch_sizes, len(view.micro_batches))}"
        )
    return f"stage {view.stage}: micro-batches {_comma_list(view.micro_batches)}{further}"


def _comma_list(values: Sequence[Any]) -> str:
    return ", ".join(v if isinstance(v, str) else json.dumps(v) for v in values)


def _values_text(row: KnobRow) -> str:
    return f"{_comma_list(row.values)}{' and up' if row.how is ChoiceKind.MINIMUM else ''}"


KNOB_COLUMNS = (
    each("name", "", "knob", is_left=True),
    each(
        "values",
        lambda a, row: row,
        "values",
        _values_text,
        is_left=True,
        data=lambda row: [*row.values],
    ),
    each("how", "how.value"),
    each("from", "origin", "from", is_left=True),
)


def _json(user: UserSettings, stages: Sequence[StageView], notes: Sequence[str]) -> str:
    rule = user.batch_rule
    document = {
        "schema_version": SCHEMA_VERSION,
        "settings": user.settings.model_dump(mode="json"),
        "global_batch": {"pinned": rule.pinned, "maximum": rule.maximum},
        "stages_from": _origin_of_stages(user),
        "stages": [
            {
                "stage": view.stage,
                "micro_batches": list(view.micro_batches),
                "combinations": view.combinations,
                "knobs": rows_documents(KNOB_COLUMNS, view.knobs),
            }
            for view in stages
        ],
        "notes": list(notes),
    }
    return json.dumps(document, indent=2)
