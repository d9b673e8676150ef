"""The shared part of dialects that are a table of spellings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoconf_launch.autotuner.space import (
    LAYOUT_KNOBS,
    AutotuningSettings,
    ChoiceKind,
    GlobalBatchRule,
    KnobChoice,
    LayoutValue,
)
from autoconf_launch.core import (
    EXTRAS,
    Candidate,
    ConfigError,
    Layout,
    Optimizer,
    Precision,
    RawConfig,
    Workload,
    data_parallel_degree,
    external_data_parallel_degree,
)

from ..script import ScriptSource
from .base import (
    GLOBAL_BATCH,
    MEASURED,
    FrameworkFacts,
    Rendered,
    RenderedFile,
    TrialNeeds,
    UserSettings,
    check_version,
)
from .batch_names import may_derive_accumulation, silent_variables
from .documents import settings_of
from .launch_inputs import Argument, Key, LaunchInputs, Place, Variable
from .own_documents import (
    document_values,
    file_of_key,
    on_folder_of_document,
    with_documents,
)
from .own_words import on_no_batch, values_of, with_own_words
from .spelled import ForeignSpelling, Spelled, Spelling, applied_value, find_row, with_applied

_BATCH = ("micro_batch", "accumulation", GLOBAL_BATCH)
_OWN = "--knob"
UNSET = "no argument"
"""Origin of an accumulation that no argument sets."""
_DEGREES = {"tensor_parallel": "tensor", "pipeline_parallel": "pipeline"} | {
    "context_parallel": "context"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A source as its table reads it."""

    source: ScriptSource
    table: tuple[Spelled, ...]
    inputs: LaunchInputs
    settings: AutotuningSettings

    @property
    def is_before_profile(self) -> bool:
        """True if a profile run will show the settings that no argument sets."""
        return self.source.applied is None and self.settings.known_model() is None


class TableDialect(ABC):
    """Reads and renders by a table; a framework supplies the table and its special cases."""

    name = ""
    framework = FrameworkFacts()
    is_external, reads_document = True, False
    checks: tuple[str, ...] = ("micro_batch", "accumulation")
    """Knobs that a probe can find in this framework's ranks."""

    @abstractmethod
    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        """The framework's rows for this source."""

    def places(
        self, source: ScriptSource, setting: str, *, switch: bool = False
    ) -> tuple[Place, ...]:
        """The possible places of an argument, a variable or a dotted key."""
        if setting.startswith("-"):
            return (Argument((setting,), switch=switch),)
        return (Variable(setting) if setting.isupper() else Key(tuple(setting.split("."))),)

    def extra_rows(self, source: ScriptSource, knobs: Container[str]) -> Iterator[Spelled]:
        """Rows of those of our extras that the framework spells."""
        spelled = [(knob, words) for knob in EXTRAS for words in knob.elsewhere]
        for knob, words in spelled:
            if words.dialect == self.name and knob.name in knobs:
                yield ForeignSpelling(
                    knob=knob.name,
                    called=tuple(filter(None, (words.setting, words.switch))),
                    places=self.places(source, words.setting) if words.setting else (),
                    switch=self.places(source, words.switch, switch=True) if words.switch else (),
                    extra=knob,
                    words=words,
                )

    def inputs(self, source: ScriptSource) -> LaunchInputs:
        """The current inputs of the launch; the document is DeepSpeed's or the script's."""
        own = source.config_argument is None
        return LaunchInputs(
            arguments=source.script_args,
            environment=source.environment,
            document=document_values(source) if own else source.config,
        )

    def workload(self, reading: Reading) -> Workload:
        """The other facts that a prediction needs."""
        return Workload(precision=Precision.FP32, optimizer=Optimizer())

    def remarks(self, reading: Reading) -> tuple[str, ...]:
        """Warnings for the user."""
        return check_version(reading.source, self.framework)

    def detections(self, reading: Reading) -> tuple[str, ...]:
        """Notes on which argument is used as which knob."""
        return ()

    def as_config(self, reading: Reading, inputs: LaunchInputs) -> RawConfig:
        """Names with their values, shown as the configuration."""
        given: dict[str, Any] = dict(inputs.environment)
        for row in reading.table:
            held = {place.name: place.get(inputs) for place in row.places}
            default = row.default if row.knob in _BATCH else None
            if type(default) is int and not any(held.values()):
                held = {row.places[0].name: default * row.factor}
            given |= {name: value for name, value in held.items() if value is not None}
        return RawConfig(given)

    def files(
        self, source: ScriptSource, inputs: LaunchInputs, config_path: str
    ) -> tuple[LaunchInputs, tuple[RenderedFile, ...]]:
        """Files next to the configuration, and the arguments that name them."""
        return with_documents(source, inputs, config_path.rpartition("/")[0] or ".")

    def read(self, source: ScriptSource, *, world_size: int) -> UserSettings:
        reading = self._reading(source, world_size)
        _require_followed(reading)
        layout = _layout(reading, world_size)
        extras = _extras(reading)
        choices = _choices(reading, layout)
        maximum = reading.settings.max_train_batch_size
        consent = source.words.allow_global_batch_change or maximum is not None
        consent = consent and not source.words.keep_global_batch
        rule = GlobalBatchRule(pinned=layout.global_batch)
        if consent and not source.keeps_batch:
            rule = GlobalBatchRule(maximum=maximum)
        return UserSettings(
            baseline=Candidate(layout=layout, extras=extras),
            choices=choices,
            batch_rule=rule,
            workload=self.workload(reading),
            settings=reading.settings,
            warnings=(
                *source.warnings,
                *self.remarks(reading),
                *_on_documents(reading),
                *_on_global_batch(reading, choices, layout, consent),
            ),
            notes=self.detections(reading),
            awaits_profile=reading.is_before_profile and _is_batch_open(reading),
        )

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        reading = self._reading(source, candidate.layout.world_size)
        inputs = reading.inputs
        for row in reading.table:
            if _is_set(row, candidate, reading):
                inputs = row.write(inputs, _value(candidate, row))
        before, after = self.as_config(reading, reading.inputs), self.as_config(reading, inputs)
        inputs, files = self.files(source, inputs, config_path)
        given = set(source.environment)
        return Rendered(
            config=after,
            script_args=inputs.arguments,
            environment=tuple(pair for pair in inputs.environment if pair not in given),
            files=files,
            before=before,
            checked=tuple(self._checked_knobs(reading)),
        )

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        return replace(
            rendered, environment=(*rendered.environment, *silent_variables(needs.folder))
        )

    def _reading(self, source: ScriptSource, world_size: int) -> Reading:
        settings = settings_of(source)
        mappings = tuple((settings.arg_mappings or {}).items())
        named = {knob.name for knob in source.words.knobs}
        inputs = self.inputs(source)
        own = (*self.table(source, world_size), *self.extra_rows(source, named))
        table = with_own_words(own, source, mappings, inputs, world_size)
        if source.applied is not None:
            table = with_applied(table, inputs, source.applied)
        return Reading(source=source, table=table, inputs=inputs, settings=settings)

    def _checked_knobs(self, reading: Reading) -> Iterator[tuple[str, str]]:
        """Knobs to check; if the script keeps its batch, the accumulation, too."""
        for row in reading.table:
            if row.knob in self.checks:
                yield row.knob, row.names()[0]
            if row.knob == "micro_batch" and reading.source.keeps_batch:
                yield "accumulation", row.names()[0]


def _require_followed(reading: Reading) -> None:
    """Raise ConfigError if the profile run had another micro-batch than the key for it."""
    applied, row = reading.source.applied, find_row(reading.table, "micro_batch")
    place = row.places[0] if isinstance(row, Spelling) else None
    if row is None or not isinstance(place, Key) or not (applied and applied.micro_batch):
        return
    stated = row.read(reading.inputs)
    if stated in (None, applied.micro_batch):
        return
    raise ConfigError(
        f"{place.name} in {file_of_key(reading.source, place.path)} is {stated}, but the "
        f"micro-batches of the profile run have {applied.micro_batch} samples. Name what sets "
        "them, --arg train_micro_batch_size_per_gpu=NAME, or have them changed inside DataLoader: "
        "--dialect dataloader."
    )


def _on_documents(reading: Reading) -> tuple[str, ...]:
    places = (place for row in reading.table for place in row.places[:1])
    paths = [place.path for place in places if isinstance(place, Key)]
    notes = (on_folder_of_document(reading.source, path) for path in paths)
    return tuple(dict.fromkeys(note for note in notes if note is not None))


def _value(candidate: Candidate, row: Spelled) -> LayoutValue:
    if row.knob == GLOBAL_BATCH or row.knob in LAYOUT_KNOBS:
        return getattr(candidate.layout, row.knob)  # type: ignore[no-any-return]
    return dict(candidate.extras).get(row.knob)


def _is_set(row: Spelled, candidate: Candidate, reading: Reading) -> bool:
    """True if a candidate sets a row: a pinned extra stays."""
    if row.knob == GLOBAL_BATCH:
        is_only = find_row(reading.table, "accumulation") is None
        needed = is_only and candidate.layout.accumulation > 1
        return needed or row.read(reading.inputs) is not None
    if row.knob in LAYOUT_KNOBS:
        waits = reading.is_before_profile and row.knob in MEASURED
        return not waits or row.read(reading.inputs) is not None
    listed = bool(values_of(row, reading.source.words.knobs))
    return listed or row.knob in dict(candidate.extras)


def _layout(reading: Reading, world_size: int) -> Layout:
    values: dict[str, Any] = {}
    for row in reading.table:
        if row.knob in LAYOUT_KNOBS and (value := row.read(reading.inputs)) is not None:
            values[row.knob] = value
    for knob in ("zero_stage", "recompute"):
        if find_row(reading.table, knob) is None:
            values[knob] = applied_value(reading.source.applied, knob)
    values = {knob: value for knob, value in values.items() if value is not None}
    degrees = {_DEGREES[knob]: values[knob] for knob in _DEGREES if knob in values}
    own = external_data_parallel_degree(world_size, reading.settings.mp_size)
    data = data_parallel_degree(own, **degrees)
    values = {**values, "data_parallel": data, **_batch(reading, values, data)}
    return Layout(**values)


def _is_batch_open(reading: Reading) -> bool:
    rows = (find_row(reading.table, knob) for knob in ("micro_batch", "accumulation"))
    told = [row is not None and row.read(reading.inputs) is not None for row in rows]
    return not all(told) and find_row(reading.table, GLOBAL_BATCH) is None


def _batch(reading: Reading, values: dict[str, Any], data: int) -> dict[str, int]:
    micro, accumulation = values.get("micro_batch"), values.get("accumulation")
    row = find_row(reading.table, GLOBAL_BATCH)
    stated: Any = row.read(reading.inputs) if row else None
    if stated is None:
        applied = reading.source.applied
        accumulation = accumulation or (applied.accumulation if applied else 1)
        return {"micro_batch": micro or _unknown_batch(reading), "accumulation": accumulation}
    if micro is None:
        micro = max(1, stated // (data * (accumulation or 1)))
    found = stated // (micro * data)
    if found * micro * data != stated or (accumulation or found) != found:
        raise ConfigError(
            f"{row.names()[0] if row else GLOBAL_BATCH} is {stated}, but micro-batch {micro} x "
            f"accumulation {accumulation or found} x {data} data-parallel ranks is "
            f"{micro * (accumulation or found) * data}; change one of them."
        )
    return {"micro_batch": micro, "accumulation": found}


def _unknown_batch(reading: Reading) -> int:
    row = find_row(reading.table, "micro_batch")
    if row is not None and reading.is_before_profile:
        return 1
    script = reading.source.name
    if row is None:
        raise ConfigError(on_no_batch(reading.source))
    raise ConfigError(
        f"{row.names()[0]}, the micro-batch, is not among the arguments of {script}, and its "
        "default can be read neither there nor in a profile run; give it a value."
    )


def _extras(reading: Reading) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (row.knob, value)
        for row in reading.table
        if _is_searched_extra(row, reading) and (value := row.read(reading.inputs)) is not None
    )


def _is_searched_extra(row: Spelled, reading: Reading) -> bool:
    own = row.knob not in LAYOUT_KNOBS and row.knob != GLOBAL_BATCH
    return own and bool(values_of(row, reading.source.words.knobs))


def _choices(reading: Reading, layout: Layout) -> tuple[KnobChoice, ...]:
    found = [_choice(row, reading, layout) for row in reading.table]
    choices = tuple(choice for choice in found if choice is not None)
    if _accumulates(reading.table) or reading.source.keeps_batch:
        return choices
    pinned = (layout.accumulation,)
    return (*choices, KnobChoice("accumulation", pinned, ChoiceKind.LISTED, origin=UNSET))


def _choice(row: Spelled, reading: Reading, layout: Layout) -> KnobChoice | None:
    """The user's choice for one knob; None if it has one value."""
    listed: tuple[Any, ...] = values_of(row, reading.source.words.knobs)
    values, kind, origin = listed, ChoiceKind.LISTED, _OWN
    if row.knob == GLOBAL_BATCH:
        return None
    if row.knob not in LAYOUT_KNOBS:
        if listed:
            values = tuple(dict.fromkeys((row.read(reading.inputs), *listed)))
    elif row.knob == "micro_batch" and not listed:
        values, kind, origin = (layout.micro_batch,), ChoiceKind.MINIMUM, row.names()[0]
    elif not listed and row.knob != "accumulation" and not reading.settings.fast:
        values, kind, origin = row.free, ChoiceKind.FREE, "default"
    return KnobChoice(row.knob, values, kind, origin=origin) if values else None


def _accumulates(table: Sequence[Spelled]) -> bool:
    return any(find_row(table, knob) is not None for knob in ("accumulation", GLOBAL_BATCH))


def _on_global_batch(
    reading: Reading, choices: tuple[KnobChoice, ...], layout: Layout, consent: bool
) -> tuple[str, ...]:
    """A sentence if no other micro-batch keeps the global batch.

    Raises:
        ConfigError: then nothing is left to search.
    """
    if consent or _accumulates(reading.table) or reading.source.keeps_batch:
        return ()
    if reading.is_before_profile and may_derive_accumulation(reading.source):
        return ()
    today = "" if reading.is_before_profile else f" of {layout.global_batch}"
    row = find_row(reading.table, "micro_batch")
    keys = [place for place in (row.places[:1] if row else ()) if isinstance(place, Key)]
    files = "".join(f" or {file_of_key(reading.source, place.path)}" for place in keys)
    example = "SECTION.KEY" if keys else "--NAME"
    name, is_measured = f"{reading.source.name}{files}", not reading.is_before_profile
    found = f"No gradient accumulation was found in {name}, so another micro-batch would change"
    if is_measured and not reading.source.is_whole:
        found = (
            f"The steps that were seen of {name} had one micro-batch each; if all have, another "
            "micro-batch changes"
        )
    sentence = (
        f"{found} the global batch{today}: allow that with --allow-global-batch-change before the "
        f"command, or name what sets its accumulation with "
        f"--arg gradient_accumulation_steps={example}."
    )
    if not any(len(choice.values) > 1 for choice in choices if choice.knob not in _BATCH):
        raise ConfigError(sentence)
    return (sentence,)
