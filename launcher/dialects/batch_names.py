"""Which names mean a batch of training, and what a source sets by itself. Not: arguments."""

from __future__ import annotations

from .script_facts import facts_of
from .script_source_facts import ScriptSource
from .spellings.common import ACCUMULATION, DERIVED_ACCUMULATION, MICRO_BATCH


def name_key(name: str) -> str:
    """``batchSize``, ``batch_size`` and ``BATCH_SIZE`` are one name."""
    return name.replace("-", "_").replace("_", "").lower()


def is_of_batch(name: str, known: tuple[str, ...] = (*MICRO_BATCH, *ACCUMULATION)) -> bool:
    """Whether scripts of all kinds call the micro-batch or the accumulation like that."""
    return name_key(name) in set(map(name_key, known))


def may_derive_accumulation(source: ScriptSource) -> bool:
    """Whether the script, or a module of its own, makes its accumulation by a division.

    So it stays with a total of samples or tokens when the micro-batch changes.
    """
    quotients = (
        name for text in (source.text, *source.modules) for name in facts_of(text).quotients
    )
    return any(is_of_batch(name, (*ACCUMULATION, *DERIVED_ACCUMULATION)) for name in quotients)


def batch_in_source(source: ScriptSource) -> int | None:
    """What the source gives its DataLoader, or calls a batch anywhere; None: it does not say."""
    facts = facts_of(source.text)
    keyword = facts.keyword("DataLoader", "batch_size")
    if keyword and type(keyword.value) is int:
        return keyword.value
    named = [value for name, value in facts.literals if is_of_batch(name, MICRO_BATCH)]
    return next((value for value in reversed(named) if type(value) is int), None)


def on_source_batch(source: ScriptSource) -> str | None:
    """What to do where a script's batch is in its source alone; None where it is not."""
    if "DataLoader" not in facts_of(source.text).called:
        return None
    batch = batch_in_source(source)
    listed = "" if batch else " '--knob=train_micro_batch_size_per_gpu=[TODAY, ...]'"
    where = f"its batch of {batch}" if batch else "its batch"
    return (
        f"No argument of {source.script or 'the script'} is known to be the micro-batch; it sets "
        f"{where} in its source. --dialect dataloader{listed} changes it inside DataLoader, and "
        "--arg train_micro_batch_size_per_gpu=--NAME names an argument."
    )
