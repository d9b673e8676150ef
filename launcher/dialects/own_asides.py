"""When a script with arguments of its own evaluates and saves in a soak. Not: a framework's words.

Only a whole number that is known and lies beyond the soak's steps is replaced: a script that is
told nothing, or a word like ``epoch``, goes on as it does.
"""

from __future__ import annotations

from dataclasses import replace

from .base import Rendered, TrialNeeds
from .batch_names import is_of_batch
from .own_words import bare
from .script_arguments import Told, told_of
from .script_source_facts import ScriptSource
from .sheet import Sheet, scalar
from .spellings.common import EVALUATE_EVERY, SAVE_EVERY


def with_own_asides(rendered: Rendered, source: ScriptSource, needs: TrialNeeds) -> Rendered:
    """The same, with the script's own evaluation and checkpoint within its steps."""
    if needs.evaluates:
        rendered = _moved(rendered, source, EVALUATE_EVERY, needs.evaluate_after)
    if needs.saves:
        rendered = _moved(rendered, source, SAVE_EVERY, needs.save_after)
    return rendered


def _moved(
    rendered: Rendered, source: ScriptSource, names: tuple[str, ...], after: int
) -> Rendered:
    """With each argument or variable of these names brought forward to a step."""
    sheet = Sheet(
        arguments=rendered.script_args, environment=(*source.environment, *rendered.environment)
    )
    searched = {bare(knob.name) for knob in source.words.knobs}
    given = set(source.environment)
    for told in told_of(source):
        own = {bare(name) for name in told.names}
        named = any(is_of_batch(name.rpartition(".")[2], names) for name in own)
        if named and not own & searched and _every(told, sheet) > after:
            sheet = told.place.put(sheet, after)
    environment = tuple(pair for pair in sheet.environment if pair not in given)
    return replace(rendered, script_args=sheet.arguments, environment=environment)


def _every(told: Told, sheet: Sheet) -> int:
    """Steps between two; 0 where it is never, or not known."""
    held = told.place.get(sheet)
    value = told.default if held is None else scalar(held)
    return value if type(value) is int else 0
