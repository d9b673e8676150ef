"""The extension point Dialect, and the rows of a table of spellings.

A row is a knob with its places and words, so that ``--train_batch_size 32`` with
``--gradient_accumulation_steps 4`` are micro-batches of 8.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol, TypeAlias

from autoconf_launch.autotuner.space import (
    LAYOUT_KNOBS,
    AutotuningSettings,
    GlobalBatchRule,
    KnobChoice,
    LayoutValue,
    parse_value,
)
from autoconf_launch.core import (
    OUTPUT,
    AppliedStrategy,
    Candidate,
    ConfigError,
    RawConfig,
    Recompute,
    Workload,
)

from ..script import ScriptSource
from .launch_inputs import (
    FALSE_WORDS,
    TRUE_WORDS,
    LaunchInputs,
    Place,
    Variable,
    find_argument,
    scalar,
)

_SHORTEST = 2
"""Most steps without a middle step."""
Version: TypeAlias = tuple[int, int]
NEWEST: Version = (9999, 0)
GLOBAL_BATCH = "global_batch"
"""In tables like a knob, but it follows from the knobs of the batch."""
_WHOLE = ("micro_batch", "accumulation", GLOBAL_BATCH)
CANONICAL = {
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "train_batch_size": GLOBAL_BATCH,
    "zero_optimization.stage": "zero_stage",
    "activation_checkpointing.mode": "recompute",
}
"""Names in the configuration file of knobs that other frameworks have, too."""
SWITCHED: tuple[tuple[Any, LayoutValue], ...] = (
    (False, Recompute.NONE),
    (True, Recompute.FULL),
)
"""Words of a switch that turns on recomputation of whole blocks."""
MEASURED = ("micro_batch", "accumulation", "zero_stage", "recompute")
"""Knobs that a probe finds in a live training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    """The user's values and open choices, in canonical knobs.

    ``workload`` has no model yet; ``awaits_profile``: the profile run will show the batch;
    ``notes`` report detections, ``warnings`` need an action.
    """

    baseline: Candidate
    choices: tuple[KnobChoice, ...]
    batch_rule: GlobalBatchRule
    workload: Workload
    settings: AutotuningSettings
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    awaits_profile: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFile:
    """A file next to the configuration; ``name`` has no folder."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A candidate as this framework spells it.

    Attributes:
        config: content of the trial's file; if the framework reads no such file, the values that
            were set.
        environment: variables of the ranks in addition to their own.
        before: the document that ``config`` is compared with; None: the user's document.
        checked: knobs that a probe must find as requested, each with the word that requests it;
            None: all that our own runtime reports.
    """

    config: RawConfig
    script_args: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    files: tuple[RenderedFile, ...] = ()
    before: RawConfig | None = None
    checked: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialNeeds:
    """The requirements of a trial on its launch.

    Attributes:
        steps: the last optimizer step that it may make.
        accumulation: micro-batches per step.
        evaluates: whether the script's evaluation, if it has one, must run within the steps.
        saves: whether its checkpoint must be saved within the steps, into :attr:`output`.
    """

    folder: str
    steps: int
    accumulation: int = 1
    evaluates: bool = False
    saves: bool = False

    @property
    def save_after(self) -> int:
        """The step after which a checkpoint is saved; the next would be beyond the last step."""
        return self.steps // 2 + 1 if self.steps > _SHORTEST else 1

    @property
    def evaluate_after(self) -> int:
        """The step after which an evaluation runs.

        It may take very long, so it follows the checkpoint, with a step between them or together,
        so that no two steps in a row follow a pause.
        """
        later = self.save_after + 2
        return later if later < self.steps else self.save_after

    @property
    def output(self) -> str:
        """The folder for the script's own output; it does not exist when a launch starts."""
        return f"{self.folder}/{OUTPUT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The framework of a dialect, for the readers of scripts.

    Attributes:
        package: its distribution; empty without one.
        oldest: first version of the package whose names are known.
        newest: last version whose names were checked.
        readers: packages of scripts whose documents with our keys it reads itself.
        variables: beginnings of the names of variables that it reads.
        unproven: its name for people, if its dialect was never checked by a run.
    """

    package: str = ""
    oldest: Version = (0, 0)
    newest: Version = NEWEST
    readers: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    unproven: str = ""


class Dialect(Protocol):
    """Reads a user's settings and renders candidates as edits of them, touching nothing else."""

    name: str
    """Its name for ``--dialect``."""

    framework: Framework

    is_external: bool
    """Its scripts are not written for our runtime, so a probe measures them."""

    reads_document: bool
    """Ranks read a document with DeepSpeed's keys, in which nothing may be left open. Other
    dialects learn from a profile run the settings that no argument sets."""

    def detects(self, source: ScriptSource) -> bool:
        """True if the script or its document is of this framework."""

    def read(self, source: ScriptSource, *, world_size: int) -> UserSettings:
        """The user's settings.

        Raises:
            ConfigError: they are invalid.
        """

    def render(self, candidate: Candidate, source: ScriptSource, config_path: str) -> Rendered:
        """The document and arguments of a launch of ``candidate``; the file is not written."""

    def in_trial(self, rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
        """A rendered candidate as a trial: it ends early, reports to no tracker and saves nothing.

        ``needs`` may keep the script's own evaluation and checkpoint, early; settings that the
        user has turned off stay off.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """An argument that a version removed; ``now`` replaces it."""

    argument: str
    gone_in: Version
    now: str


def installed_version(source: ScriptSource, package: str) -> Version | None:
    """Major and minor version of a package; None if it is unknown."""
    text = dict(source.versions).get(package)
    numbers = re.findall(r"\d+", text or "")[:2]
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 else None


def check_version(source: ScriptSource, known: Framework) -> tuple[str, ...]:
    """A sentence if the installed version is newer than the table.

    Raises:
        ConfigError: it is older.
    """
    version = installed_version(source, known.package)
    if version is None:
        return ()
    given = dict(source.versions)[known.package]
    if version < known.oldest:
        raise ConfigError(
            f"{known.package} {given} is older than {_text(known.oldest)}, the first one whose "
            "arguments are known here; update it, or take --dialect arguments with --arg."
        )
    if version > known.newest:
        return (
            f"{known.package} {given} is newer than {_text(known.newest)}, the last one whose "
            "arguments were checked; assuming that they are the same.",
        )
    return ()


def refuse_renamed(source: ScriptSource, package: str, renamed: tuple[Renamed, ...]) -> None:
    """Raise ConfigError for an argument that the installed version lacks."""
    version = installed_version(source, package)
    for row in renamed:
        given = find_argument(source.script_args, (row.argument,)) is not None
        if version is not None and version >= row.gone_in and given:
            raise ConfigError(
                f"{row.argument} is not an argument of {package} {dict(source.versions)[package]} "
                f"(gone in {_text(row.gone_in)}); {row.now}."
            )


def _text(version: Version) -> str:
    return ".".join(map(str, version))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled(ABC):
    """Reads one knob from a launch's inputs, and writes it there.

    Attributes:
        knob: field of ``Layout``, an extra, or ``GLOBAL_BATCH``.
        called: its names in the framework, for people.
        places: its possible places, which are shown as the configuration.
        default: meaning of its absence; None: unknown.
        free: values that are searched if the user sets none and leaves it open.
        factor: written number per unit of the knob's value.
    """

    knob: str
    called: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    default: LayoutValue = None
    free: tuple[LayoutValue, ...] = ()
    factor: int = 1

    def names(self) -> tuple[str, ...]:
        """Its names for people, the framework's first."""
        return (*self.called, self.knob)

    @abstractmethod
    def read(self, inputs: LaunchInputs) -> LayoutValue:
        """The knob's value; None if neither the inputs nor a default give it.

        Raises:
            ConfigError: the text in its place cannot be its value.
        """

    @abstractmethod
    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        """The inputs with another value."""

    @abstractmethod
    def value_of(self, word: Any) -> LayoutValue:
        """The meaning of a word in the user's list of values.

        Raises:
            ConfigError: it has no meaning here.
        """

    def write(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        """The inputs with a value; unchanged if they have it already."""
        return inputs if self.read(inputs) == value else self.put(inputs, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling(Spelled):
    """A knob in one place: the first place that holds it decides, else the first is written.

    Attributes:
        words: written words and their meanings; the first word of a meaning is written, None
            omits the setting. Empty: plain values.
        overrides: the first place overrides the others, and only there is written.
    """

    words: tuple[tuple[Any, LayoutValue], ...] = ()
    overrides: bool = False

    def names(self) -> tuple[str, ...]:
        places = (getattr(place, "names", (place.name,)) for place in self.places)
        return (*(name for names in places for name in names), self.knob)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        place = self._held_place(inputs)
        return self.default if place is None else self._parse_value(place.get(inputs), place.name)

    def value_of(self, word: Any) -> LayoutValue:
        """The meaning of a word; the configuration file's words are accepted, too."""
        for _, meaning in self.words:
            own = meaning.value if isinstance(meaning, Enum) else meaning
            if type(own) is type(word) and own == word:
                return meaning
        return self._parse_value(word, self.places[0].name)

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        place = (None if self.overrides else self._held_place(inputs)) or self.places[0]
        word = self._word(value)
        inputs = place.drop(inputs) if word is None else place.put(inputs, word)
        if word is False and self.read(inputs) not in (value, None):  # skipped, it is on
            inputs = place.put(inputs, "false")
        return inputs

    def _word(self, value: LayoutValue) -> Any:
        if self.words:
            return next((word for word, meaning in self.words if meaning == value), None)
        plain = value.value if isinstance(value, Enum) else value
        return plain * self.factor if self.factor > 1 else plain  # type: ignore[operator]

    def _parse_value(self, given: Any, name: str) -> LayoutValue:
        if self.words:
            return self._meaning(given, name)
        value = scalar(given)
        if self.knob in _WHOLE or self.knob in LAYOUT_KNOBS:
            return self._whole(value, name)
        return value  # type: ignore[no-any-return]

    def _held_place(self, inputs: LaunchInputs) -> Place | None:
        return next(
            (place for place in self.places if (place.get(inputs) not in (None, "auto"))), None
        )

    def _meaning(self, given: Any, name: str) -> LayoutValue:
        for word, meaning in self.words:
            if _same(word, given):
                return meaning
        known = ", ".join(str(word) for word, _ in self.words if word is not None)
        raise ConfigError(f"{name} is {given!r}, which is not known here; known: {known}.")

    def _whole(self, value: Any, name: str) -> LayoutValue:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if self.knob in LAYOUT_KNOBS and LAYOUT_KNOBS[self.knob].values is not None:
            return parse_value(self.knob, number)
        number = whole_number(number, name)
        if number % self.factor:
            raise ConfigError(f"{name} is {number}, which does not divide by {self.factor} ranks.")
        return number // self.factor


def _same(word: Any, given: Any) -> bool:
    if isinstance(word, bool):
        said = str(given).strip().lower()
        return said in TRUE_WORDS if word else said in (*FALSE_WORDS, "")
    return str(word).lower() == str(given).strip().lower()


def whole_number(value: Any, name: str) -> int:
    """A whole number of at least 1.

    Raises:
        ConfigError: it is not.
    """
    if type(value) is not int or value < 1:
        raise ConfigError(f"{name} is {value!r}, but must be a whole number of at least 1.")
    return value


def find_row(table: Sequence[Spelled], knob: str) -> Spelled | None:
    """The row of a knob; None if the framework has no word for it."""
    return next((row for row in table if row.knob == knob), None)


def find_spelling(table: Sequence[Spelled], name: str) -> Spelled | None:
    """The row that people call ``name``."""
    wanted = CANONICAL.get(name, name).lstrip("-").replace("-", "_")
    for row in table:
        if wanted in {known.lstrip("-").replace("-", "_") for known in row.names()}:
            return row
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBatch(Spelled):
    """The argument, as the global batch of ``ranks``."""

    argument: Spelling
    ranks: int
    knob: str = GLOBAL_BATCH

    def names(self) -> tuple[str, ...]:
        return (*self.argument.names()[:-1], self.knob)

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        held: Any = self.argument.read(inputs)
        return None if held is None else int(held) * self.ranks

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        whole: Any = value
        return self.argument.write(inputs, int(whole) // self.ranks)

    def value_of(self, word: Any) -> LayoutValue:
        return self.argument.value_of(word)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitMicroBatch(Spelled):
    """The micro-batch that follows from the argument and the accumulation."""

    argument: Spelling
    accumulation: Spelling
    knob: str = "micro_batch"

    def names(self) -> tuple[str, ...]:
        return self.argument.names()

    def read(self, inputs: LaunchInputs) -> LayoutValue:
        held: Any = self.argument.read(inputs)
        steps: Any = self.accumulation.read(inputs)
        return None if held is None else max(1, int(held) // int(steps or 1))

    def put(self, inputs: LaunchInputs, value: LayoutValue) -> LaunchInputs:
        """The global batch and the accumulation say it."""
        return inputs

    def value_of(self, word: Any) -> LayoutValue:
        return self.argument.value_of(word)


def applied_value(applied: AppliedStrategy | None, knob: str) -> LayoutValue:
    """The value that ran; None without a profile run, or if it could not see the knob."""
    if applied is None or knob not in MEASURED:
        return None
    value: LayoutValue = getattr(applied, knob)
    return None if knob == "micro_batch" and not value else value


def with_applied(
    table: Sequence[Spelled], inputs: LaunchInputs, applied: AppliedStrategy
) -> tuple[Spelled, ...]:
    """The table with the values that ran as defaults of rows that hold no value.

    A row whose words mean something else while it holds no value cannot change what the script
    does by itself; it is skipped, so that the knob stays as it ran.
    """
    rows = (_with_default(row, inputs, applied_value(applied, row.knob)) for row in table)
    return tuple(row for row in rows if row is not None)


def _with_default(row: Spelled, inputs: LaunchInputs, value: LayoutValue) -> Spelled | None:
    if value is None or row.read(inputs) == value or _is_given(row, inputs):
        return row
    if isinstance(row, Spelling):
        return replace(row, default=_as_words_have_it(row, value))
    return None if row.knob == "zero_stage" else row


def _is_given(row: Spelled, inputs: LaunchInputs) -> bool:
    places = row.places or tuple(map(Variable, row.names()))
    return any(place.get(inputs) not in (None, "auto") for place in places)


def _as_words_have_it(row: Spelling, value: LayoutValue) -> LayoutValue:
    """A switch turns all recomputation on, however little of it a probe sees run again."""
    meanings = [meaning for _, meaning in row.words]
    is_other = bool(meanings) and value not in meanings
    return Recompute.FULL if is_other and row.knob == "recompute" else value
