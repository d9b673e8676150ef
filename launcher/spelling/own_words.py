"""The user's ``--arg`` and ``--knob`` as rows of a dialect's table.

A script's settings are arguments that it or its modules declare, arguments that it is given, names
of an executed module, keys of a configuration that it composes or of a document that its arguments
name, and variables that it reads.

An interval of evaluation or saving is moved into a trial only if it is a known whole number beyond
the trial's steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.space import LAYOUT_KNOBS
from autoconf_launch.core import ConfigError, KeyPath, KnobValue, dotted_name, nearest_known

from ..asked import OwnKnob
from ..script import (
    FROM_CLASSES,
    FROM_FUNCTIONS,
    LIGHTNING_PACKAGES,
    Declared,
    ScriptFacts,
    ScriptSource,
    facts_of,
)
from .base import CANONICAL, GLOBAL_BATCH, MEASURED, SWITCHED, Rendered, TrialNeeds
from .batch_names import (
    EVALUATE_EVERY,
    SAVE_EVERY_NAMES,
    batch_in_source,
    is_accumulation,
    is_of_batch,
)
from .launch_inputs import Argument, Key, LaunchInputs, Place, Variable, find_argument, scalar
from .own_documents import document_key, document_values, script_documents, with_documents
from .spelled import Spelled, Spelling, SplitMicroBatch, find_row, find_spelling

_KNOWN = {**CANONICAL, **{name: name for name in (*LAYOUT_KNOBS, GLOBAL_BATCH)}}
_READ_WORDS = re.compile(r"argv|pars|environ|getenv|option|flags|config|cli\b", re.IGNORECASE)
"""Signs that a source reads a command line or variables."""
_SHORT = 2
_LONG = re.compile(r"-[A-Za-z]{2}\w*")
"""A long name after one dash, such as OpenNMT's ``-batch_size``; in ``-b8``, 8 is a value."""


def with_own_words(
    table: Sequence[Spelled],
    source: ScriptSource,
    mappings: Sequence[tuple[str, str]],
    inputs: LaunchInputs,
    ranks: int,
) -> tuple[Spelled, ...]:
    """The table with the user's arguments replacing its rows, and with their own knobs.

    A framework's row stays if the argument is its own. If a framework has no word for the global
    batch, an argument that is mapped to it is the micro-batch times the ranks.

    Raises:
        ConfigError: a name is unknown, or the script's arguments do not give its value.
    """
    rows = list(table)
    facts = replace(source.facts, declared=source.declared)
    for key, flag in (*mappings, *source.words.arguments):
        if _is_own(find_row(rows, _knob(key, flag)), flag):
            continue
        row = _mapped_row(key, flag, source, facts, inputs)
        if row.knob == GLOBAL_BATCH and find_row(rows, GLOBAL_BATCH) is None:
            row = replace(row, knob="micro_batch", factor=ranks, default=None)
        own = find_row(rows, row.knob)
        rows = [row if other is own else other for other in rows] if own else [*rows, row]
    for knob in source.words.knobs:
        if find_spelling(rows, knob.name) is None:
            _require_known(knob.name, source)
            place = _place(knob.name, source, facts)
            default = _default(facts, knob.name)
            rows.append(Spelling(knob=bare(knob.name), places=(place,), default=default))
    return tuple(rows)


def values_of(row: Spelled, knobs: Sequence[OwnKnob]) -> tuple[KnobValue, ...]:
    """The values that the user lists for a row; none if they list none."""
    listed = [knob for knob in knobs if find_spelling((row,), knob.name) is not None]
    values = (row.value_of(value) for knob in listed for value in knob.values)
    return tuple(dict.fromkeys(values))  # type: ignore[arg-type]


def bare(name: str) -> str:
    """A name without dashes: ``--num-workers`` is the knob ``num_workers``."""
    return name.lstrip("-").replace("-", "_")


def declared_as(declared: Iterable[Declared], flag: str) -> Declared | None:
    """The script's own declaration of an argument, by any of its names."""
    for argument in declared:
        if bare(flag) in {bare(name) for name in argument.names}:
            return argument
    return None


def _require_known(flag: str, source: ScriptSource) -> None:
    """Raise ConfigError if a fully known parser refuses this flag; capitals are a variable."""
    flags = source.flags
    if flags is None or flag.isupper() or bare(flag) in map(bare, flags):
        return
    if document_key(source, flag):
        return
    if not flag.startswith("-") and any(not known.startswith("-") for known in flags):
        return
    raise ConfigError(
        f"--knob is given {flag}, which {source.name} does not take; "
        f"{nearest_known(flag, {*flags, *CANONICAL} - {flag})}"
    )


def _knob(key: str, flag: str) -> str:
    if key not in _KNOWN:
        raise ConfigError(f"--arg {key}={flag} maps {key}; {nearest_known(key, CANONICAL)}")
    return _KNOWN[key]


def _is_own(row: Spelled | None, flag: str) -> bool:
    """True if a row is for this argument as it is, without a factor of ranks or steps."""
    if row is None or isinstance(row, SplitMicroBatch) or row.factor > 1:
        return False
    words = [name for name in row.names() if name.startswith("-") == flag.startswith("-")]
    return bare(flag) in map(bare, words)


def _mapped_row(
    key: str, flag: str, source: ScriptSource, facts: ScriptFacts, inputs: LaunchInputs
) -> Spelling:
    knob, place = _knob(key, flag), _place(flag, source, facts)
    row = Spelling(knob=knob, places=(place,), default=_default(facts, flag))
    if knob == "recompute":
        row = replace(row, words=SWITCHED, default=dict(SWITCHED)[row.default is True])
    is_told = knob in MEASURED and not _is_unknown(flag, facts)  # by the profile run
    if row.read(inputs) is None and not is_told:
        files = " and ".join(file.path for file in script_documents(source))
        raise ConfigError(
            f"{flag} is mapped to {key}, but is not among the script's arguments"
            f"{f' or the keys of {files}' if files else ''} and its default cannot be read from "
            f"{source.name}; add it to the arguments."
        )
    return row


def _is_unknown(flag: str, facts: ScriptFacts) -> bool:
    made = facts.imports(*FROM_CLASSES, *FROM_FUNCTIONS, *LIGHTNING_PACKAGES)
    return not made and declared_as(facts.declared, flag) is None


def _place(name: str, source: ScriptSource, facts: ScriptFacts) -> Place:
    if (path := document_key(source, name)) is not None:
        return Key(path)
    if name.isupper():
        return Variable(name)
    declared = declared_as(facts.declared, name)
    names: tuple[str, ...] = (name,)
    if declared:  # a parser tells - from _, so its own spelling is written
        own = name if name in declared.names else declared.names[-1]
        names = tuple(dict.fromkeys((own, *declared.names, name)))
    switch, opposites = (declared.switch, declared.opposites) if declared else (False, ())
    return Argument(names, switch=switch, opposites=opposites)


def _default(facts: ScriptFacts, name: str) -> KnobValue:
    declared = declared_as(facts.declared, name)
    if declared is not None:
        return declared.default
    return dict(facts.constants).get(bare(name))


def on_no_batch(source: ScriptSource) -> str:
    """The reason why no micro-batch was found, and how to name one."""
    script = source.name
    keys = "".join(f" and no key of {file.path}" for file in script_documents(source))
    if source.missing:
        lacking, verb = " and ".join(source.missing), "do" if source.missing[1:] else "does"
        return (
            f"{lacking}, named by the arguments of {script}, {verb} not exist, and no argument of "
            f"{script}{keys} is known to be the micro-batch. Correct the path, or name "
            "the argument with --arg train_micro_batch_size_per_gpu=--NAME."
        )
    batch = batch_in_source(source)
    seen = f"; it sets its batch of {batch} in its source" if batch else ""
    named = (name for told in known_names(source) for name in told.names)
    consent = "" if any(map(is_accumulation, named)) else " --allow-global-batch-change"
    example = " (or =SECTION.KEY for a key)" if keys else ""
    change = f"changed inside DataLoader: --dialect dataloader{consent}."
    if source.text and source.is_whole and not any("Loader" in text for text in source.texts):
        return (
            f"No argument of {script}{keys} is known to be the micro-batch{seen}, and it has no "
            "DataLoader whose batch could be changed. Name the argument or key with --arg "
            "train_micro_batch_size_per_gpu=NAME, or let the script read its micro-batch from an "
            "argument --batch_size."
        )
    if not _takes_words(source):
        return (
            f"{script} reads no arguments{seen}. Let it read its micro-batch from an argument "
            f"--batch_size, or have its batch {change}"
        )
    return (
        f"No argument of {script}{keys} is known to be the micro-batch{seen}. Name it with "
        f"--arg train_micro_batch_size_per_gpu=--NAME{example}, or have it {change}"
    )


def _takes_words(source: ScriptSource) -> bool:
    """True if the script may have settings outside its source."""
    if not source.text or not source.is_whole or any(True for _ in known_names(source)):
        return True
    makers = (*FROM_CLASSES, *FROM_FUNCTIONS, "click")
    made = any(facts.imports(*makers) for facts in source.all_facts)
    return made or any(map(_READ_WORDS.search, source.texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A setting of the script with its default; None if that is unknown.

    It is an argument, a variable or, with ``key``, a value of a document.
    """

    names: tuple[str, ...]
    default: KnobValue
    joined: bool = False
    is_variable: bool = False
    key: KeyPath = ()

    @property
    def place(self) -> Place:
        if self.key:
            return Key(self.key)
        if self.is_variable:
            return Variable(self.names[0])
        return Argument(self.names, joined=self.joined)

    def has_value(self, source: ScriptSource) -> bool:
        return type(self.default) is int or self.is_given(source)

    def is_given(self, source: ScriptSource) -> bool:
        return self._given_value(source) is not None

    def value(self, source: ScriptSource) -> KnobValue:
        held = self._given_value(source)
        value: KnobValue = self.default if held is None else scalar(held)
        return value

    def _given_value(self, source: ScriptSource) -> object:
        inputs = LaunchInputs(arguments=source.script_args, environment=source.environment)
        return self.place.get(inputs)


def known_names(source: ScriptSource) -> Iterator[Told]:
    """All settings that the script knows; the first of two with one name wins."""
    executed = is_executed(source)
    known: set[str] = set()
    for told in (
        *_document_names(source),
        *_declared_names(source),
        *_given_names(source),
        *_composed_names(source),
        *_assigned_names(source),
    ):
        names = {bare(name) for name in told.names}
        if not names & known:
            known |= names
            yield replace(told, joined=executed)
    for name, default in source.facts.variables:
        yield Told(names=(name,), default=default, is_variable=True)


def is_executed(source: ScriptSource) -> bool:
    """True if the script executes text; such a script takes only ``--NAME=VALUE``."""
    facts = source.facts
    return "exec" in facts.called and not facts.declared


def _document_names(source: ScriptSource) -> Iterator[Told]:
    """Whole numbers of the script's documents that no argument of the same name overrides."""
    for path, value in document_values(source).leaves():
        name = dotted_name(path)
        is_number = type(value) is int and value > 0
        if is_number and find_argument(source.script_args, (name,)) is None:
            yield Told(names=(name,), default=value, key=path)


def _declared_names(source: ScriptSource) -> Iterator[Told]:
    declared = source.declared
    every = {name for argument in declared for name in argument.names}
    for argument in declared:
        long_first = sorted(argument.names, key=lambda name: len(name) <= _SHORT)
        short = _abbreviations(argument, source, every)
        yield Told(names=(*long_first, *short), default=argument.default)


def _abbreviations(argument: Declared, source: ScriptSource, every: set[str]) -> tuple[str, ...]:
    """Given beginnings of its names that are unambiguous, which argparse accepts."""
    words = {word.partition("=")[0] for word in source.script_args if word.startswith("--")}
    found = []
    for word in sorted(words - every - {"--"}):
        meant = {name for name in every if name.startswith(word)}
        if meant and meant <= {*argument.names}:
            found.append(word)
    return tuple(found)


def _given_names(source: ScriptSource) -> Iterator[Told]:
    constants = dict(source.facts.constants)
    for word in source.script_args:
        name = word.partition("=")[0]
        is_word = "=" in word and not word.startswith("-")
        if is_word or word.startswith("--") or _LONG.fullmatch(name):
            written = name.lstrip("+") if is_word else name
            yield Told(names=(written,), default=constants.get(bare(name)))


def _composed_names(source: ScriptSource) -> Iterator[Told]:
    for name, value in source.composed:
        if find_argument(source.script_args, (name,)) is None:
            yield Told(names=(name,), default=value)


def _assigned_names(source: ScriptSource) -> Iterator[Told]:
    """Module-level names of the script, overridden by the Python files that its arguments name."""
    if not is_executed(source):
        return
    values = dict(source.facts.constants)
    for file in source.files:
        if file.path.endswith(".py"):
            values |= dict(facts_of(file.text).constants)
    yield from (Told(names=(f"--{name}",), default=value) for name, value in values.items())


def move_asides(rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
    """Move the script's own evaluation and checkpoint into a trial's steps."""
    document = document_values(source)
    inputs = LaunchInputs(
        arguments=rendered.script_args,
        environment=(*source.environment, *rendered.environment),
        document=document,
    )
    if needs.evaluates:
        inputs = _postpone(inputs, source, EVALUATE_EVERY, needs.evaluate_after)
    if needs.saves:
        inputs = _postpone(inputs, source, SAVE_EVERY_NAMES, needs.save_after)
    inputs, files = with_documents(source, inputs, needs.folder, rendered.files)
    given = set(source.environment)
    environment = tuple(pair for pair in inputs.environment if pair not in given)
    return replace(rendered, script_args=inputs.arguments, environment=environment, files=files)


def _postpone(
    inputs: LaunchInputs, source: ScriptSource, names: tuple[str, ...], after: int
) -> LaunchInputs:
    searched = {bare(knob.name) for knob in source.words.knobs}
    for told in known_names(source):
        own = {bare(name) for name in told.names}
        named = any(is_of_batch(name.rpartition(".")[2], names) for name in own)
        if named and not own & searched and _every(told, inputs) > after:
            inputs = told.place.put(inputs, after)
    return inputs


def _every(told: Told, inputs: LaunchInputs) -> int:
    held = told.place.get(inputs)
    value = told.default if held is None else scalar(held)
    return value if type(value) is int else 0
