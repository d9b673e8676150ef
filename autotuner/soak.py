"""Whether the winner holds out: one longer launch, as the training will be. Not: its speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoconf_launch.core import FailureKind

from .stop import StopKind, StopReason
from .trial import Record, Trial

SOAK_STEPS = 50
"""Optimizer steps, unless they would take too long."""

FEWEST_STEPS = 5
MOST_MEMORY = 0.98
"""Of the device; a training that needs more fails sooner or later."""

_SUFFIX = "_soak"


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
    """

    steps: int
    memory_share: float | None
    refused: tuple[str, ...]
    passed: bool
    phases: tuple[tuple[str, float], ...] = ()
    step_s: float = 0.0

    @property
    def sentence(self) -> str:
        """What was done and what was not."""
        if not self.passed:
            return "No measured configuration passed the soak."
        share = "" if self.memory_share is None else f", {self.memory_share:.0%} of memory at most"
        if not self.phases:
            return (
                f"It ran {self.steps} steps in a launch of its own{share}; checkpoints and "
                "evaluation that trials leave out were left out here, too."
            )
        return (
            f"It ran {self.steps} steps in a launch of its own, the last one with the longest "
            f"batch seen{share}. What the script does after its steps was not run."
        )


class Soak:
    """Asks for the winner; for the next safer one where it does not pass."""

    def __init__(self, ranked: Sequence[Record], *, steps: int) -> None:
        self._left = list(ranked)
        self._steps = steps
        self._told: list[Record] = []
        self._pending = False

    @property
    def records(self) -> tuple[Record, ...]:
        """Everything that was told, in order."""
        return tuple(self._told)

    @property
    def best(self) -> Record | None:
        """The one that passed."""
        last = self._told[-1] if self._told else None
        return last if last and refusal(last) is None else None

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next one, unless one has passed."""
        if self._pending or free_slots < 1 or self.best or not self._left:
            return ()
        self._pending = True
        trial = self._left[0].trial
        name = f"{trial.name}{_SUFFIX}"
        return (replace(trial, name=name, attempt=1, final=False, soak_steps=self._steps),)

    def tell(self, record: Record) -> None:
        """Take an outcome; what is not safer than a refused one is not tried."""
        self._pending = False
        name = soaked_name(record)
        tried = next((r for r in self._left if r.trial.name == name), None)
        if tried is None:
            return
        self._told.append(record)
        self._left.remove(tried)
        if needs_less(record):
            self._left = [other for other in self._left if _peak(other) < _peak(tried)]

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """As planned."""
        return None

    def stop_reason(self) -> StopReason | None:
        """That one passed, or none is left."""
        if self._pending or (self._left and not self.best):
            return None
        kind = StopKind.EXPLORED if self.best else StopKind.NOTHING_MEASURED
        return StopReason(kind=kind, sentence=report(self.records).sentence)


def soak_steps(asked: int | None, *, step_s: float, time_s: float) -> int:
    """How many: as asked, else ``SOAK_STEPS`` or what ``time_s`` has room for."""
    if asked is not None:
        return asked
    return max(FEWEST_STEPS, min(SOAK_STEPS, int(time_s / step_s)))


def report(records: Sequence[Record]) -> SoakReport:
    """What the soaks of a study, in their order, come to."""
    reasons = [(soaked_name(record), refusal(record)) for record in records]
    last = records[-1].measurement if records else None
    memory = last.memory if last else None
    return SoakReport(
        steps=last.first_step - 1 + len(last.step_s) if last and last.first_step else 0,
        memory_share=memory.peak_bytes / memory.limit_bytes
        if memory and memory.limit_bytes
        else None,
        refused=tuple(f"{name} was refused: {reason}." for name, reason in reasons if reason),
        passed=bool(reasons) and reasons[-1][1] is None,
        phases=last.phases if last else (),
        step_s=last.mean_step_s if last and last.step_s else 0.0,
    )


def refusal(record: Record) -> str | None:
    """Why a soak was not passed; None where it was."""
    if record.failure:
        return f"it failed in the soak ({record.failure.kind.value}: {record.failure.detail})"
    memory = record.outcome.memory
    if memory and memory.limit_bytes and memory.peak_bytes > MOST_MEMORY * memory.limit_bytes:
        share = memory.peak_bytes / memory.limit_bytes
        return f"it used {share:.1%} of memory in the soak, more than {MOST_MEMORY:.0%}"
    return None


def needs_less(record: Record) -> bool:
    """Whether it was memory that a soak failed for."""
    if record.failure:
        return record.failure.kind is FailureKind.OUT_OF_MEMORY
    return refusal(record) is not None


def soaked_name(record: Record) -> str:
    """Of the trial in the search."""
    return record.trial.name.removesuffix(_SUFFIX)


def _peak(record: Record) -> float:
    memory = record.outcome.memory
    return memory.peak_bytes if memory else float("inf")
