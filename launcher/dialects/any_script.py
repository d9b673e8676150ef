"""Scripts of no known framework: ``arguments``, ``document`` and ``dataloader``.

The batch is in the script's arguments, or in a YAML, JSON or TOML file that they name, of which
each trial gets an edited copy; or the probe changes it inside DataLoader. Common names are
recognised and reported; ``--arg`` maps others, ``--knob`` adds knobs.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..script import ScriptSource
from ..spelling import (
    ACCUMULATION_NAMES,
    MICRO_BATCH_NAMES,
    Argument,
    Key,
    LaunchInputs,
    Place,
    Reading,
    Rendered,
    Spelled,
    Spelling,
    SplitBatch,
    SplitMicroBatch,
    TableDialect,
    Told,
    TrialNeeds,
    Variable,
    bare,
    batch_in_source,
    document_key,
    file_of_key,
    find_argument,
    find_row,
    is_accumulation,
    is_elsewhere,
    is_micro_batch,
    is_of_batch,
    known_names,
    move_asides,
    name_key,
    name_parts,
    script_documents,
    values_of,
)

_RUN_FOLDER = "hydra.run.dir"
_MEANING = {
    "micro_batch": "the micro-batch",
    "accumulation": "gradient accumulation",
}
_OF_TRAINING = re.compile(r"\.train(ing)?$")
"""End of ``batch_size.train``, which may be next to ``batch_size.eval``."""
DATALOADER_BATCH_VARIABLE = "AUTOCONF_LAUNCH_DATALOADER_BATCH"
"""Samples per batch that the training DataLoaders of a rank give, instead of the script's
number."""


class ArgumentsDialect(TableDialect):
    """Scripts with their own arguments."""

    name = "arguments"

    def detects(self, source: ScriptSource) -> bool:
        if source.words.arguments or source.words.knobs:
            return True
        return recognise_row(source, "micro_batch", MICRO_BATCH_NAMES, 1) is not None

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        return batch_rows(source, ranks)

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """The folder that hydra would name by date goes below the trial's folder."""
        rendered = move_asides(super().in_trial(rendered, source, needs), source, needs)
        if not _runs_elsewhere(source):
            return rendered
        folder = f"{_RUN_FOLDER}={needs.folder}/hydra"
        return replace(rendered, script_args=(*rendered.script_args, folder))

    def detections(self, reading: Reading) -> tuple[str, ...]:
        return recognition_notes(reading)


class DocumentDialect(ArgumentsDialect):
    """Scripts that read the batch from a document."""

    name = "document"

    def detects(self, source: ScriptSource) -> bool:
        if not script_documents(source):
            return False
        named = (flag for _, flag in source.words.arguments)
        rows = batch_rows(source, 1)
        return any(map(_is_key, rows)) or any(document_key(source, flag) for flag in named)


def _runs_elsewhere(source: ScriptSource) -> bool:
    composed = {name for name, _ in source.composed}
    given = find_argument(source.script_args, (_RUN_FOLDER,)) is not None
    return source.facts.imports("hydra") and not given and _RUN_FOLDER not in composed


def batch_rows(source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
    """Rows for the batch in the script's own arguments; none if they do not set it."""
    micro = recognise_row(source, "micro_batch", MICRO_BATCH_NAMES, ranks)
    accumulation = recognise_row(source, "accumulation", ACCUMULATION_NAMES, ranks)
    if micro and accumulation and _is_split(micro.names()[:-1], source):
        split = SplitMicroBatch(argument=micro, accumulation=accumulation, places=micro.places)
        return (split, accumulation, SplitBatch(argument=micro, ranks=ranks, places=micro.places))
    return tuple(row for row in (micro, accumulation) if row is not None)


def recognition_notes(reading: Reading) -> tuple[str, ...]:
    """Sentences on arguments that were recognised and not named by the user."""
    mapped = {flag for _, flag in reading.source.words.arguments}
    mapped |= set((reading.settings.arg_mappings or {}).values())
    rows = [(find_row(reading.table, knob), words) for knob, words in _MEANING.items()]
    return tuple(
        f"Using {_full_name(row, reading.source)} as {words} (change it with --arg)."
        for row, words in rows
        if row is not None
        and row.names()[0] not in mapped
        and isinstance(_first_place(row), (Argument, Variable, Key))
    )


def _first_place(row: Spelled) -> Place | None:
    return row.places[0] if row.places else None


def _is_key(row: Spelled) -> bool:
    return isinstance(_first_place(row), Key)


def _full_name(row: Spelled, source: ScriptSource) -> str:
    place = _first_place(row)
    file = file_of_key(source, place.path) if isinstance(place, Key) else ""
    return f"{row.names()[0]} in {file}" if file else row.names()[0]


def _is_split(names: tuple[str, ...], source: ScriptSource) -> bool:
    own = _names_in_source(names)
    divisors = source.facts.divisors
    return any(name in own and is_of_batch(by, ACCUMULATION_NAMES) for name, by in divisors)


def _names_in_source(names: tuple[str, ...]) -> set[str]:
    """Names of a setting in the script's text, also by the last part of a dotted name."""
    own = {bare(name) for name in names}
    return own | {name.rpartition(".")[2] for name in own}


def recognise_row(
    source: ScriptSource, knob: str, names: tuple[str, ...], ranks: int
) -> Spelling | None:
    """The row of the most specific of these names that the script is given or declares.

    After the profile run a setting that has the measured number comes first.
    """
    known = {name_key(name): place for place, name in enumerate(names)}
    settings = [*known_names(source)]
    found = [
        (not told.has_value(source), known[last], _distance(told, source), told)
        for told in settings
        if (last := _last_part(told, known)) is not None
    ]
    if not found:
        found = [
            (False, 0, _distance(told, source), told)
            for told in settings
            if _is_named_after(knob, told, source)
        ]
    if not found:
        return None
    ran = getattr(source.applied, knob, None)
    shared = ran * ranks if ran and knob == "micro_batch" else ran
    *_, told = min(
        found,
        key=lambda item: (bool(ran) and item[3].value(source) not in (ran, shared), *item[:3]),
    )
    total = bool(_names_in_source(told.names) & source.facts.divided)
    if ran and (value := told.value(source)) in (ran, shared):
        total = value != ran
    total = total and not _is_split(told.names, source)
    whole = told.default if type(told.default) is int else None
    factor = ranks if total else 1
    if whole is not None and whole % factor == 0:
        whole //= factor
    return Spelling(knob=knob, places=(told.place,), default=whole, factor=factor)


def _distance(told: Told, source: ScriptSource) -> tuple[int, bool, int]:
    """Order among equal names: given ones, then keys of documents (of training, near the top)."""
    sections = [part for name in told.names for part in name_parts(name.rpartition(".")[0])]
    tier = 0 if told.is_given(source) else 1 if told.key else 2
    return tier, not {"train", "training"} & {*sections}, len(told.key)


def _is_named_after(knob: str, told: Told, source: ScriptSource) -> bool:
    """True if a number is the value or default of an argument with such parts in its name."""
    inputs = LaunchInputs(arguments=source.script_args, environment=source.environment)
    given = told.place.get(inputs)
    is_number = type(told.default) is int if given is None else str(given).isdecimal()
    names = map(bare, told.names)
    if knob == "accumulation":
        return is_number and any(map(is_accumulation, names))
    splits = (name.rpartition(".") for name in names)
    return is_number and any(
        is_micro_batch(last) and not is_elsewhere(sections) for sections, _, last in splits
    )


def _last_part(told: Told, known: dict[str, int]) -> str | None:
    """The known name that any name ends in, unless it belongs to an evaluation's batch."""
    for name in told.names:
        sections, _, last = _OF_TRAINING.sub("", bare(name)).rpartition(".")
        if name_key(last) in known and not is_elsewhere(sections):
            return name_key(last)
    return None


class DataLoaderDialect(TableDialect):
    """Scripts that set the batch only in their source."""

    name = "dataloader"

    def detects(self, source: ScriptSource) -> bool:
        """True only if the user named it, as it reaches into the script's process."""
        return source.words.dialect == self.name

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        row = Spelling(
            knob="micro_batch",
            places=(Variable(DATALOADER_BATCH_VARIABLE),),
            default=_today(source),
        )
        own = recognise_row(source, "accumulation", ACCUMULATION_NAMES, ranks)
        return (row,) if own is None else (row, own)

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        return move_asides(super().in_trial(rendered, source, needs), source, needs)


def _today(source: ScriptSource) -> int | None:
    """The batch of the script's own DataLoader: a literal, a constant, or the user's first."""
    row = Spelling(knob="micro_batch", places=(Variable(DATALOADER_BATCH_VARIABLE),))
    listed = values_of(row, source.words.knobs)
    found: object = batch_in_source(source)
    found = listed[0] if found is None and listed else found
    return found if type(found) is int else None
