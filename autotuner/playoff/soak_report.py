"""The outcome of a study's verification runs: what was refused and why, what the last one did.

Not: which configuration is launched (``soak``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoconf_launch.core import Asides, Failure, FailureKind

from ..space import Record, Trial

MOST_MEMORY = 0.98
"""Share of the device's memory; a training that needs more fails sooner or later."""

FEWEST_STEPS_OF_AN_EPOCH = 10
"""Fewer are named."""

SUFFIX = "_soak"
"""Suffix of a launch's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakReport:
    """The launch that the winner passed, or that nothing passed.

    Attributes:
        steps: optimizer steps that it made.
        memory_share: of the limit at its peak; None where there is no limit.
        refused: a sentence on each better one that did not pass.
        passed: whether the last one did.
        phases: mean seconds of its steps' phases; our own runtime takes them apart.
        step_s: mean seconds of those steps; 0 where there are none.
        asides: what the script did beside its steps; None: nobody looked.
        as_trial: why the last one had to skip what trials do; "" where it had not.
        few_steps: a sentence where another batch than the user's leaves few steps of an epoch.
        whatever: what the script fails with in any configuration; "" where that is not known.
    """

    steps: int
    memory_share: float | None
    refused: tuple[str, ...]
    passed: bool
    phases: tuple[tuple[str, float], ...] = ()
    step_s: float = 0.0
    asides: Asides | None = None
    as_trial: str = ""
    whatever: str = ""
    few_steps: str = ""

    @property
    def error(self) -> str:
        """Why nothing can be trained with; "" where the last one passed."""
        if self.whatever:
            return (
                "No configuration passes its verification run: the script fails in it whatever "
                f"the configuration, yours too ({self.whatever})."
            )
        return "" if self.passed else "No measured configuration passed its verification run."


def report(records: Sequence[Record]) -> SoakReport:
    """What the soaks of a study, in their order, come to."""
    pairs = zip(records, (*records[1:], None), strict=True)
    counted = [record for record, then in pairs if not (then and then.trial.attempt > 1)]
    reasons = [(soaked_name(record), refusal(record)) for record in counted]
    chosen = passed(records)
    final = chosen or (records[-1] if records else None)
    last = final.measurement if final else None
    memory = last.memory if last else None
    return SoakReport(
        steps=last.first_step - 1 + len(last.step_s) if last and last.first_step else 0,
        memory_share=memory.peak_bytes / memory.limit_bytes
        if memory and memory.limit_bytes
        else None,
        refused=tuple(f"{name} {reason}." for name, reason in reasons if reason),
        passed=chosen is not None,
        phases=last.phases if last else (),
        step_s=last.mean_step_s if last and last.step_s else 0.0,
        asides=last.asides if last else None,
        as_trial=_doubted(records, chosen) if chosen else "",
        whatever="" if chosen else _whatever(records),
        few_steps=_few_steps(chosen) if chosen else "",
    )


def _few_steps(record: Record) -> str:
    """Where the user's own batch is another one, and an epoch has few steps of this one."""
    asides = record.outcome.asides
    layout = record.trial.candidate.layout
    if record.trial.number == 0 or asides is None or not asides.epoch_batches:
        return ""
    steps = -(-asides.epoch_batches // layout.accumulation)
    if steps >= FEWEST_STEPS_OF_AN_EPOCH:
        return ""
    count = _counted(steps, "optimizer step", "optimizer steps")
    return f" At a global batch of {layout.global_batch} an epoch has only {count}."


def passed(records: Sequence[Record]) -> Record | None:
    """The last one that did; the user's own may have before others were refused."""
    return next((r for r in reversed(records) if refusal(r) is None), None)


def refusal(record: Record) -> str | None:
    """Why a soak was not passed; None where it was."""
    if record.failure:
        return f"failed its verification run ({_words(record.failure)})"
    memory = record.outcome.memory
    if memory and memory.limit_bytes and memory.peak_bytes > MOST_MEMORY * memory.limit_bytes:
        share = memory.peak_bytes / memory.limit_bytes
        most = f"more than {100 * MOST_MEMORY:.0f} %"
        return f"used {100 * share:.1f} % of memory in its verification run, {most}"
    return None


def needs_less(record: Record) -> bool:
    """Whether it was memory that a soak failed for."""
    if record.failure:
        return record.failure.kind is FailureKind.OUT_OF_MEMORY
    return refusal(record) is not None


def failed_alike(records: Sequence[Record]) -> tuple[Record, ...]:
    """One launch of each configuration that failed as the last one did; none if of memory."""
    last = records[-1].failure if records else None
    if last is None or needs_less(records[-1]):
        return ()
    latest = {soaked_name(record): record for record in records}
    found = ((record, record.failure) for record in latest.values())
    return tuple(r for r, failure in found if failure and _words(failure) == _words(last))


def fails_whatever(records: Sequence[Record]) -> bool:
    """Whether two failed alike at last, one of them as the user gave it."""
    alike = failed_alike(records)
    return len(alike) > 1 and any(record.trial.number == 0 for record in alike)


def soaked_name(record: Record) -> str:
    """Name of the trial in the search."""
    return soaked_name_of(record.trial)


def soaked_name_of(trial: Trial) -> str:
    """The same of a trial alone."""
    return trial.name.removesuffix(SUFFIX)


def _doubted(records: Sequence[Record], chosen: Record) -> str:
    """What a first attempt of it failed with, if there were two."""
    name = soaked_name(chosen)
    before = (r.failure for r in records if r is not chosen and soaked_name(r) == name)
    failure = next(before, None) if chosen.trial.attempt > 1 else None
    return _words(failure) if failure else ""


def _whatever(records: Sequence[Record]) -> str:
    failure = records[-1].failure if fails_whatever(records) else None
    return _words(failure) if failure else ""


def _words(failure: Failure) -> str:
    return f"{failure.kind.value}: {failure.detail}"


def _counted(count: int, one: str, several: str) -> str:
    return f"1 {one}" if count == 1 else f"{count} {several}"
