"""The dialect ``arguments``: any script whose own arguments set the batch. Not: a framework.

Common names are recognised, and said; ``--arg`` names others, ``--knob`` adds knobs.
"""

from __future__ import annotations

from collections.abc import Iterator

from .base import ScriptSource
from .own_words import bare
from .script_facts import facts_of
from .sheet import Argument
from .spelling import Spelled, Spelling, spelled
from .spellings.common import ACCUMULATION, ELSEWHERE, MICRO_BATCH
from .table_dialect import Reading, TableDialect

_SHORT = 2
_MEANING = {
    "micro_batch": "the micro-batch of each rank (train_micro_batch_size_per_gpu)",
    "accumulation": "the gradient accumulation (gradient_accumulation_steps)",
}


class ArgumentsDialect(TableDialect):
    """Scripts with arguments of their own."""

    name = "arguments"

    def detects(self, source: ScriptSource) -> bool:
        """An argument is mapped, or one with a common name is given or declared."""
        if source.words.arguments or source.words.knobs:
            return True
        return recognised(source, "micro_batch", MICRO_BATCH, 1) is not None

    def table(self, source: ScriptSource, ranks: int) -> tuple[Spelled, ...]:
        """See TableDialect."""
        return batch_rows(source, ranks)

    def remarks(self, reading: Reading) -> tuple[str, ...]:
        """Which arguments were taken for what."""
        return taken(reading)


def batch_rows(source: ScriptSource, ranks: int) -> tuple[Spelling, ...]:
    """Rows for what the script's own arguments say of the batch; nothing where they do not."""
    rows = (
        recognised(source, "micro_batch", MICRO_BATCH, ranks),
        recognised(source, "accumulation", ACCUMULATION, ranks),
    )
    return tuple(row for row in rows if row is not None)


def taken(reading: Reading, knobs: tuple[str, ...] = tuple(_MEANING)) -> tuple[str, ...]:
    """Sentences on arguments that were recognised and not named by the user."""
    mapped = {flag for _, flag in reading.source.words.arguments}
    mapped |= set((reading.settings.arg_mappings or {}).values())
    rows = [(spelled(reading.table, knob), _MEANING[knob]) for knob in knobs]
    return tuple(
        f"{row.names()[0]} is taken for {words}; --arg NAME=FLAG says otherwise."
        for row, words in rows
        if row is not None and row.names()[0] not in mapped and _is_argument(row)
    )


def _is_argument(row: Spelled) -> bool:
    return isinstance(row, Spelling) and isinstance(row.places[0], Argument)


def recognised(
    source: ScriptSource, knob: str, names: tuple[str, ...], ranks: int
) -> Spelling | None:
    """The row of the most telling of these names that the script gives or declares."""
    known = {name: place for place, name in enumerate(names)}
    found = [
        (known[last], spellings, default)
        for spellings, default in _arguments(source)
        if (last := _last_part(spellings, known)) is not None
    ]
    if not found:
        return None
    _, spellings, default = min(found, key=lambda item: item[0])
    total = bool({bare(name) for name in spellings} & facts_of(source.text).divided)
    whole = default if type(default) is int else None
    factor = ranks if total else 1
    if whole is not None and whole % factor == 0:
        whole //= factor
    place = Argument(spellings, joined=_is_executed(source))
    return Spelling(knob=knob, places=(place,), default=whole, factor=factor)


def _arguments(source: ScriptSource) -> Iterator[tuple[tuple[str, ...], object]]:
    """Names of each argument that is given or declared, with its default."""
    facts = facts_of(source.text)
    for argument in facts.declared:
        long_first = sorted(argument.names, key=lambda name: len(name) <= _SHORT)
        yield tuple(long_first), argument.default
    declared = {bare(name) for argument in facts.declared for name in argument.names}
    for word in source.script_args:
        name = word.partition("=")[0]
        is_word = "=" in word and not word.startswith("-")
        if (is_word or word.startswith("--")) and bare(name) not in declared:
            constants = dict(facts.constants)
            yield (name.lstrip("+") if is_word else name,), constants.get(bare(name))
    if _is_executed(source):
        for name, value in _assigned(source):
            yield (f"--{name}",), value


def _is_executed(source: ScriptSource) -> bool:
    """Whether the script executes text, as those do whose arguments are ``--NAME=VALUE`` alone."""
    facts = facts_of(source.text)
    return "exec" in facts.called and not facts.declared


def _assigned(source: ScriptSource) -> Iterator[tuple[str, object]]:
    """Module-level names of the script, overridden by the Python files that its arguments name."""
    values = dict(facts_of(source.text).constants)
    for file in source.files:
        if file.path.endswith(".py"):
            values |= dict(facts_of(file.text).constants)
    yield from values.items()


def _last_part(names: tuple[str, ...], known: dict[str, int]) -> str | None:
    """The known name that any of these ends in, unless it is of another batch than training's."""
    for name in names:
        *sections, last = bare(name).split(".")
        if last in known and not set(sections) & set(ELSEWHERE):
            return last
    return None
