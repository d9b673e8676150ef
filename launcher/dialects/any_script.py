"""The dialect ``arguments``: any script whose own arguments set the batch.

Common names are recognised, and said; ``--arg`` names others, ``--knob`` adds knobs.

The probe reads the variable in each rank.
"""

from __future__ import annotations

from dataclasses import replace

from ..script import ScriptSource
from ..spelling import (
    ACCUMULATION_NAMES,
    ELSEWHERE,
    MICRO_BATCH_NAMES,
    Argument,
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
    find_argument,
    find_row,
    is_accumulation,
    is_of_batch,
    known_names,
    move_asides,
    name_key,
    values_of,
)

_RUN_FOLDER = "hydra.run.dir"
_MEANING = {
    "micro_batch": "the micro-batch",
    "accumulation": "gradient accumulation",
}


class ArgumentsDialect(TableDialect):
    """Scripts with arguments of their own."""

    name = "arguments"

    def detects(self, source: ScriptSource) -> bool:
        """An argument is mapped, or one with a common name is given or declared."""
        if source.words.arguments or source.words.knobs:
            return True
        return recognise_row(source, "micro_batch", MICRO_BATCH_NAMES, 1) is not None

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        """See TableDialect."""
        return batch_rows(source, ranks)

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """What hydra would put into a dated folder goes below the trial's; see own_asides."""
        rendered = move_asides(super().in_trial(rendered, source, needs), source, needs)
        if not _runs_elsewhere(source):
            return rendered
        folder = f"{_RUN_FOLDER}={needs.folder}/hydra"
        return replace(rendered, script_args=(*rendered.script_args, folder))

    def detections(self, reading: Reading) -> tuple[str, ...]:
        """Which arguments were taken for what."""
        return recognition_notes(reading)


def _runs_elsewhere(source: ScriptSource) -> bool:
    """Whether hydra makes a dated folder for each run, and nobody says which."""
    composed = {name for name, _ in source.composed}
    given = find_argument(source.script_args, (_RUN_FOLDER,)) is not None
    return source.facts.imports("hydra") and not given and _RUN_FOLDER not in composed


def batch_rows(source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
    """Rows for what the script's own arguments say of the batch; nothing where they do not."""
    micro = recognise_row(source, "micro_batch", MICRO_BATCH_NAMES, ranks)
    accumulation = recognise_row(source, "accumulation", ACCUMULATION_NAMES, ranks)
    if micro and accumulation and _is_split(micro.names()[:-1], source):
        split = SplitMicroBatch(micro, accumulation)
        return (split, accumulation, SplitBatch(micro, ranks))
    return tuple(row for row in (micro, accumulation) if row is not None)


def recognition_notes(
    reading: Reading, knobs: tuple[str, ...] = tuple(_MEANING)
) -> tuple[str, ...]:
    """Sentences on arguments that were recognised and not named by the user."""
    mapped = {flag for _, flag in reading.source.words.arguments}
    mapped |= set((reading.settings.arg_mappings or {}).values())
    rows = [(find_row(reading.table, knob), _MEANING[knob]) for knob in knobs]
    return tuple(
        f"Using {row.names()[0]} as {words} (change it with --arg)."
        for row, words in rows
        if row is not None and row.names()[0] not in mapped and _is_argument(row)
    )


def _is_argument(row: Spelled) -> bool:
    places: tuple[Place, ...] = getattr(row, "places", ())
    return bool(places) and isinstance(places[0], (Argument, Variable))


def _is_split(names: tuple[str, ...], source: ScriptSource) -> bool:
    """Whether the script divides this argument by its accumulation."""
    own = {bare(name) for name in names}
    divisors = source.facts.divisors
    return any(name in own and is_of_batch(by, ACCUMULATION_NAMES) for name, by in divisors)


def recognise_row(
    source: ScriptSource, knob: str, names: tuple[str, ...], ranks: int
) -> Spelling | None:
    """The row of the most telling of these names that the script gives or declares."""
    known = {name_key(name): place for place, name in enumerate(names)}
    arguments = [*known_names(source)]
    found = [
        (not told.has_value(source), known[last], told)
        for told in arguments
        if (last := _last_part(told, known)) is not None
    ]
    if not found and knob == "accumulation":
        found = [(False, 0, told) for told in arguments if _accumulates(told, source)]
    if not found:
        return None
    _, _, told = min(found, key=lambda item: item[:2])
    own = {bare(name) for name in told.names}
    total = bool(own & source.facts.divided) and not _is_split(told.names, source)
    whole = told.default if type(told.default) is int else None
    factor = ranks if total else 1
    if whole is not None and whole % factor == 0:
        whole //= factor
    return Spelling(knob=knob, places=(told.place,), default=whole, factor=factor)


def _accumulates(told: Told, source: ScriptSource) -> bool:
    """Whether a number is given, or is the default, of an argument named after accumulation."""
    inputs = LaunchInputs(arguments=source.script_args, environment=source.environment)
    given = told.place.get(inputs)
    is_number = type(told.default) is int if given is None else str(given).isdecimal()
    return is_number and any(map(is_accumulation, map(bare, told.names)))


def _last_part(told: Told, known: dict[str, int]) -> str | None:
    """The known name that any of these ends in, unless it is of another batch than training's."""
    for name in told.names:
        *sections, last = bare(name).split(".")
        if name_key(last) in known and not {section.lower() for section in sections} & {
            *ELSEWHERE
        }:
            return name_key(last)
    return None


DATALOADER_BATCH_VARIABLE = "AUTOCONF_LAUNCH_DATALOADER_BATCH"
"""Samples of each batch that a training DataLoader of a rank gives, instead of the script's."""


class DataLoaderDialect(TableDialect):
    """Scripts that set the batch in their source alone."""

    name = "dataloader"

    def detects(self, source: ScriptSource) -> bool:
        """Whether the user named it: it reaches into the script's process."""
        return source.words.dialect == self.name

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        """See TableDialect."""
        row = Spelling(
            knob="micro_batch",
            places=(Variable(DATALOADER_BATCH_VARIABLE),),
            default=_today(source),
        )
        own = recognise_row(source, "accumulation", ACCUMULATION_NAMES, ranks)
        return (row,) if own is None else (row, own)

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """See own_asides; the probe keeps what is saved in the trial's folder."""
        return move_asides(super().in_trial(rendered, source, needs), source, needs)


def _today(source: ScriptSource) -> int | None:
    """The batch of the script's own DataLoader: a literal, a constant, or the user's first."""
    row = Spelling(knob="micro_batch", places=(Variable(DATALOADER_BATCH_VARIABLE),))
    listed = values_of(row, source.words.knobs)
    found: object = batch_in_source(source)
    found = listed[0] if found is None and listed else found
    return found if type(found) is int else None
