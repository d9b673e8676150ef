"""``show spaces``: the knobs of a search and the source of each value. Nothing is run.

``show spaces [--config FILE] [--json] [launcher flags] [script.py arguments]``
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.space import (
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
from ..report import KnobRow, SpacesAnswer, StageView, spaces_document, spaces_text
from ..request import LaunchRequest
from ..script import ScriptSource
from ..spelling import UserSettings
from ..tuning import read_job

_NO_SCRIPT = "script.py"
"""Last argument; with a script in the command line it is an argument too many."""
_MOST_KEYS = 5


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
        answer = _of_document(replace(request, autotuning="tune"), source)
    else:
        words = (*request.script_args[:-1], *named)
        answer = _of_script(replace(request, autotuning="tune", script_args=words))
    user = answer.user
    space = build_space(user.baseline, user.choices, user.batch_rule, user.settings)
    answer = replace(answer, stages=tuple(_stage_views(user, space)), space_notes=space.notes)
    as_json = flags.json
    yield json.dumps(spaces_document(answer), indent=2) if as_json else spaces_text(answer)


def _on_foreign(path: str) -> str:
    """Why a file that was given as a configuration is not read as one."""
    found = list(read_config(Path(path)).to_dict())
    more = ", …" if len(found) > _MOST_KEYS else ""
    return (
        f"None of the keys of {path} is known ({', '.join(found[:_MOST_KEYS])}{more}); a "
        f"configuration has keys such as {keys.MICRO_BATCH[0]}, {keys.ACCUMULATION[0]} and "
        f"{keys.ZERO_STAGE[0]}. For a script's own file, give the script, too."
    )


def _of_script(request: LaunchRequest) -> SpacesAnswer:
    notes: list[Event] = []
    user = read_job(request, notes.append).user
    texts = tuple(note.text for note in notes if isinstance(note, Note))
    return SpacesAnswer(user=user, notes=texts)


def _of_document(request: LaunchRequest, source: ScriptSource) -> SpacesAnswer:
    source = replace(source, words=request.words)
    named = source.config_argument is not None or request.words.dialect is not None
    dialect = choose_dialect(source).dialect if named else BuiltinDialect()

    ranks = len(find_cluster(request).devices)
    as_deepspeed = lacks_batch = False
    try:
        user = dialect.read(source, world_size=ranks)
        batches = (keys.TRAIN_BATCH_SIZE, keys.MICRO_BATCH, keys.ACCUMULATION)
        lacks_batch = source.config_argument is not None and not any(
            key in source.config for key in batches
        )
    except ConfigError as error:
        if request.words.dialect is not None or source.config_argument is None:
            raise
        try:
            user, as_deepspeed = DeepSpeedDialect().read(source, world_size=ranks), True
        except ConfigError:
            raise error from None
    return SpacesAnswer(
        user=user,
        notes=(*user.notes, *user.warnings),
        as_deepspeed=as_deepspeed,
        lacks_batch=lacks_batch,
    )


def _stage_views(user: UserSettings, space: SearchSpace) -> Iterator[StageView]:
    usual = map(space.table.row, space.usual_C.nonzero()[0].tolist())
    layouts = [user.baseline.layout, *(candidate.layout for candidate in usual)]
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
