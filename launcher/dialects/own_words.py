"""The user's ``--arg`` and ``--knob`` as rows beside a dialect's own table. Not: their parsing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.autotuner.knobs import LAYOUT_KNOBS
from autoconf_launch.core import ConfigError, KnobValue, nearest_known

from .as_applied import MEASURED
from .script_facts import (
    FROM_CLASSES,
    FROM_FUNCTIONS,
    LIGHTNING_PACKAGES,
    Declared,
    ScriptFacts,
    declared_in,
    facts_of,
)
from .script_parser import parser_flags
from .script_source_facts import OwnKnob, ScriptSource
from .sheet import Argument, Place, Sheet, Variable
from .spelling import CANONICAL, GLOBAL_BATCH, SWITCHED, Spelled, Spelling, named, spelled
from .split_batch import SplitMicroBatch

_KNOWN = {**CANONICAL, **{name: name for name in (*LAYOUT_KNOBS, GLOBAL_BATCH)}}


def with_own_words(
    table: Sequence[Spelled],
    source: ScriptSource,
    mappings: Sequence[tuple[str, str]],
    ranks: int,
) -> tuple[Spelled, ...]:
    """The table with the user's arguments in place of its own, and with their further knobs.

    A row of the framework's stays where the argument is its own, with what it knows of it. Where
    a framework has no word for the global batch, an argument that is mapped to it is the
    micro-batch times the ranks.

    Raises:
        ConfigError: a name is unknown, or the script's arguments do not say its value.
    """
    rows = list(table)
    facts = replace(facts_of(source.text), declared=declared_in((source.text, *source.modules)))
    for key, flag in (*mappings, *source.words.arguments):
        if _is_own(spelled(rows, _knob(key, flag)), flag):
            continue
        row = _mapped(key, flag, source, facts)
        if row.knob == GLOBAL_BATCH and spelled(rows, GLOBAL_BATCH) is None:
            row = replace(row, knob="micro_batch", factor=ranks, default=None)
        own = spelled(rows, row.knob)
        rows = [row if other is own else other for other in rows] if own else [*rows, row]
    for knob in source.words.knobs:
        if named(rows, knob.name) is None:
            _require_known(knob.name, source)
            place = _place(knob.name, facts)
            default = _default(facts, knob.name)
            rows.append(Spelling(knob=bare(knob.name), places=(place,), default=default))
    return tuple(rows)


def values_of(row: Spelled, knobs: Sequence[OwnKnob]) -> tuple[KnobValue, ...]:
    """The values that the user lists for a row; none where they do not."""
    listed = [knob for knob in knobs if named((row,), knob.name) is not None]
    values = (row.value_of(value) for knob in listed for value in knob.values)
    return tuple(dict.fromkeys(values))  # type: ignore[arg-type]


def bare(name: str) -> str:
    """A name without dashes: ``--num-workers`` is the knob ``num_workers``."""
    return name.lstrip("-").replace("-", "_")


def declared_as(facts: ScriptFacts, flag: str) -> Declared | None:
    """The script's own declaration of an argument, by any of its names."""
    for argument in facts.declared:
        if bare(flag) in {bare(name) for name in argument.names}:
            return argument
    return None


def _require_known(flag: str, source: ScriptSource) -> None:
    """See that a parser whose flags are all known would take this one.

    Raises:
        ConfigError: it would not.
    """
    flags = parser_flags(source)
    if flags is None or not flag.startswith("-") or bare(flag) in map(bare, flags):
        return
    raise ConfigError(
        f"--knob is given {flag}, which {source.script or 'the script'} does not take; "
        f"{nearest_known(flag, flags)}"
    )


def _knob(key: str, flag: str) -> str:
    if key not in _KNOWN:
        raise ConfigError(f"--arg {key}={flag} maps {key}; {nearest_known(key, CANONICAL)}")
    return _KNOWN[key]


def _is_own(row: Spelled | None, flag: str) -> bool:
    """Whether a row answers to an argument as it is, without reckoning with ranks or steps."""
    if row is None or isinstance(row, SplitMicroBatch) or getattr(row, "factor", 1) > 1:
        return False
    words = [name for name in row.names() if name.startswith("-") == flag.startswith("-")]
    return bare(flag) in map(bare, words)


def _mapped(key: str, flag: str, source: ScriptSource, facts: ScriptFacts) -> Spelling:
    knob, place = _knob(key, flag), _place(flag, facts)
    row = Spelling(knob=knob, places=(place,), default=_default(facts, flag))
    if knob == "recompute":
        row = replace(row, words=SWITCHED, default=dict(SWITCHED)[row.default is True])
    sheet = Sheet(arguments=source.script_args, environment=source.environment)
    is_told = knob in MEASURED and not _is_unknown(flag, facts)  # by the profile run
    if row.read(sheet) is None and not is_told:
        raise ConfigError(
            f"{flag} is to stand for {key}, but is not among the script's arguments and its "
            f"default cannot be read from {source.script or 'the script'}; give it there."
        )
    return row


def _is_unknown(flag: str, facts: ScriptFacts) -> bool:
    """Whether neither the script declares it nor a library that makes arguments of classes."""
    made = facts.imports(*FROM_CLASSES, *FROM_FUNCTIONS, *LIGHTNING_PACKAGES)
    return not made and declared_as(facts, flag) is None


def _place(name: str, facts: ScriptFacts) -> Place:
    if name.isupper():
        return Variable(name)
    declared = declared_as(facts, name)
    names: tuple[str, ...] = (name,)
    if declared:  # a parser tells - from _, so its own spelling is written
        own = name if name in declared.names else declared.names[-1]
        names = tuple(dict.fromkeys((own, *declared.names, name)))
    switch, opposites = (declared.switch, declared.opposites) if declared else (False, ())
    return Argument(names, switch=switch, opposites=opposites)


def _default(facts: ScriptFacts, name: str) -> KnobValue:
    declared = declared_as(facts, name)
    if declared is not None:
        return declared.default
    return dict(facts.constants).get(bare(name))
