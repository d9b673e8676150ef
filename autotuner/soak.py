"""Whether the winner holds out: one longer launch, as the training will be. Not: its speed.

The script's own evaluation and checkpoint are moved into it where its words allow that; else its
data ends with the steps, as after an epoch. What of them came to pass is seen, not assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.core.asides import Aside, Asides, WentOn

from .stop import StopKind, StopReason
from .trial import FailedTrial, Record, Trial

SOAK_STEPS = 50
"""Optimizer steps, unless they would take too long."""

FEWEST_STEPS = 5
MOST_MEMORY = 0.98
"""Of the device; a training that needs more fails sooner or later."""

_SUFFIX = "_soak"
_DOUBTFUL = (FailureKind.CRASHED, FailureKind.BAD_CONFIG, FailureKind.NO_STEPS)
"""What a script may fail with because its evaluation or its checkpoint was moved."""
_EVALUATION = "evaluation of the trained model"
"""One of another, as of its average, may not be seen."""
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (0, "B"))


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
        as_trial: why the last one had to leave out what trials do; "" where it had not.
    """

    steps: int
    memory_share: float | None
    refused: tuple[str, ...]
    passed: bool
    phases: tuple[tuple[str, float], ...] = ()
    step_s: float = 0.0
    asides: Asides | None = None
    as_trial: str = ""

    @property
    def sentence(self) -> str:
        """What was done and what was not."""
        if not self.passed:
            return "No measured configuration passed the soak."
        share, asides = self.memory_share, self.asides or Asides()
        memory = "" if share is None else f", {share:.0%} of memory at most"
        longest = ", the last one with the longest batch seen" if asides.longest_batch else ""
        steps = _counted(self.steps, "step", "steps")
        least = "at least " if asides.under_way and not asides.went_on else ""
        return (
            f"It ran {least}{steps} in a launch of its own{longest}{memory}."
            f"{_afterwards(asides)}{self._beside}{_left_out(asides)}"
        )

    @property
    def _beside(self) -> str:
        if self.asides is None:
            return ""
        where = "within its steps or after them" if self.asides.went_on else "within its steps"
        evaluation, checkpoint = _evaluation(self.asides), _checkpoint(self.asides)
        seen = " and ".join(filter(None, (evaluation, checkpoint)))
        missed = " and no ".join(
            name
            for name, words in ((_EVALUATION, evaluation), (Aside.CHECKPOINT.value, checkpoint))
            if not words
        )
        sentences = f" It went through {seen}." if seen else ""
        sentences += f" No {missed} came {where}." if missed else ""
        if self.as_trial:
            sentences += f" With the script's own moved there it had failed ({self.as_trial})."
        return sentences


class Soak:
    """Asks for the winner; for the next safer one where it does not pass."""

    def __init__(self, ranked: Sequence[Record], *, steps: int) -> None:
        """``ranked`` is the best first; ``steps`` are of each.

        The script's evaluation and checkpoint are moved into a first attempt, so that it may fail
        for that. Then a second one leaves out what trials do.
        """
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
        again = bool(self._told) and _is_doubtful(self._told[-1])
        trial = self._told[-1].trial if again else self._left[0].trial
        name = f"{soaked_name_of(trial)}{_SUFFIX}"
        attempt = 2 if again else 1
        return (replace(trial, name=name, attempt=attempt, final=False, soak_steps=self._steps),)

    def tell(self, record: Record) -> None:
        """Take an outcome; what is not safer than a refused one is not tried."""
        self._pending = False
        name = soaked_name(record)
        tried = next((r for r in self._left if r.trial.name == name), None)
        if tried is None:
            return
        self._told.append(record)
        if _is_doubtful(record):
            return
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
    pairs = zip(records, (*records[1:], None), strict=True)
    counted = [record for record, then in pairs if not (then and then.trial.attempt > 1)]
    reasons = [(soaked_name(record), refusal(record)) for record in counted]
    last = records[-1].measurement if records else None
    doubted = records[-2].failure if len(counted) < len(records) else None
    again = bool(records) and records[-1].trial.attempt > 1
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
        asides=last.asides if last else None,
        as_trial=_words(doubted) if doubted and again else "",
    )


def refusal(record: Record) -> str | None:
    """Why a soak was not passed; None where it was."""
    if record.failure:
        return f"it failed in the soak ({_words(record.failure)})"
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
    return soaked_name_of(record.trial)


def soaked_name_of(trial: Trial) -> str:
    """The same of a trial alone."""
    return trial.name.removesuffix(_SUFFIX)


def _is_doubtful(record: Record) -> bool:
    """Whether a first attempt failed, and neither of memory nor in what was moved."""
    if record.trial.attempt > 1 or not isinstance(record.outcome, FailedTrial):
        return False
    asides = record.outcome.asides
    return record.outcome.failure.kind in _DOUBTFUL and not (asides and asides.under_way)


def _words(failure: Failure) -> str:
    return f"{failure.kind.value}: {failure.detail}"


def _afterwards(asides: Asides) -> str:
    """What came after the last step."""
    if asides.went_on is WentOn.EPOCH:
        return " Its data ended after them as after an epoch."
    return " It went on to the script's end." if asides.went_on is WentOn.END else ""


def _left_out(asides: Asides) -> str:
    """What was not run, or why it could not be."""
    if asides.broke and asides.broke_in:
        return (
            f" It failed in or after the {asides.broke_in.value} ({asides.broke}); whether "
            "because its data ended early is not known."
        )
    if asides.broke:
        return f" The script could not go on without its data ({asides.broke})."
    if asides.went_on is WentOn.END:
        return ""
    left_out = "last epoch" if asides.went_on is WentOn.EPOCH else "steps"
    return f" What the script does after its {left_out} was not run."


def _evaluation(asides: Asides) -> str:
    """Words for it; "" where there was none."""
    if not asides.evaluations:
        return ""
    batches = _counted(asides.evaluation_batches, "batch", "batches")
    if asides.under_way is Aside.EVALUATION:
        return f"{batches} of an evaluation that was not seen to end in its time"
    return f"{_counted(asides.evaluations, 'evaluation', 'evaluations')} ({batches})"


def _checkpoint(asides: Asides) -> str:
    """Words for it; "" where there was none."""
    if not asides.checkpoints:
        return ""
    if asides.under_way is Aside.CHECKPOINT:
        return "a checkpoint that had not ended when its time was up"
    size = next(
        f"{asides.saved_bytes / (u or 1):.3g} {n}" for u, n in _SIZES if asides.saved_bytes >= u
    )
    return f"{_counted(asides.checkpoints, 'checkpoint', 'checkpoints')} ({size})"


def _counted(count: int, one: str, several: str) -> str:
    return f"1 {one}" if count == 1 else f"{count} {several}"


def _peak(record: Record) -> float:
    memory = record.outcome.memory
    return memory.peak_bytes if memory else float("inf")
