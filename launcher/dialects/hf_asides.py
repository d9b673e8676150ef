"""When a Trainer evaluates and saves in a trial. Not: where the words stand (hf_trainer)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from .base import TrialNeeds
from .script_facts import facts_of
from .script_source_facts import ScriptSource
from .sheet import scalar
from .spellings import hf_trainer as names
from .versions import Version

Setting: TypeAlias = tuple[str, str]
"""An argument and its value."""


def aside_settings(
    source: ScriptSource,
    needs: TrialNeeds,
    version: Version,
    given: Callable[[str], object],
) -> tuple[Setting, ...]:
    """Words for what the script does beside its steps: nothing, or once within them.

    Args:
        source: of the script.
        needs: what the launch asks for.
        version: of transformers.
        given: what the user says of an argument; None where they say nothing.
    """
    settings = dict(_of_version(names.IN_TRIALS, version))
    if needs.evaluates and _evaluates(source, given):
        after = str(needs.evaluate_after)
        flag = "--eval_strategy" if "--eval_strategy" in settings else "--evaluation_strategy"
        settings |= {flag: "steps", "--eval_steps": after, "--eval_delay": "0"}
    if needs.saves and _word(given("--save_strategy")) != "no":
        settings |= {"--save_strategy": "steps", "--save_steps": str(needs.save_after)}
    return tuple(settings.items())


def _of_version(
    table: Iterable[tuple[str, str, Version, Version]], version: Version
) -> tuple[Setting, ...]:
    return tuple((flag, value) for flag, value, since, until in table if since <= version < until)


def _evaluates(source: ScriptSource, given: Callable[[str], object]) -> bool:
    """Whether the user has it evaluate while it trains, or afterwards what it has by then."""
    strategies = [given(flag) for flag in names.EVALUATION]
    if any(word is not None and _word(word) != "no" for word in strategies):
        return True
    afterwards = scalar(given("--do_eval")) is True
    return afterwards and any(
        keyword.name == "eval_dataset" and keyword.call.endswith("Trainer")
        for keyword in facts_of(source.text).keywords
    )


def _word(value: object) -> str:
    """YAML reads a bare ``no`` as false."""
    return "no" if value is False else str(value).lower()
