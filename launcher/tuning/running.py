"""Trials that wait and trials that run, and the time that all may take.

One clock runs from the command's start, and one deadline ends every stage.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoconf_launch.autotuner.space import FailedTrial, Prediction, Trial
from autoconf_launch.core import (
    STEPS_FILE,
    ClusterSpec,
    Failure,
    FailureKind,
    NothingFeasibleError,
    StepRecord,
    plural,
)

from ..engines import Job, JobEnd
from ..estimates import choose_price
from ..hosts import Placement, Share, Size, SlotPool
from ..launch import Compiled, compile_time, is_beside_steps, started_ranks
from ..machine import Weather
from ..plan import LaunchPlan
from ..request import LaunchRequest
from ..results import SlowestRanks, StepsTail, tell_end

_ENDING_S, _ENDING_SHARE = 3.0, 0.05
"""Time that is kept for ending launches and writing results, at most this share of a budget."""
_LATE = 1.05
"""Time at which the next step is looked for, in steps after the last one."""
_MOST_STEPS = 10**6
_LATER = 0.1
"""Pause before a late step is looked for again, in steps."""
_LOSSES = (FailureKind.NODE_LOST, FailureKind.PREEMPTED)
MOST_LOSSES = 3
"""Launches of one trial that may lose their hosts.

A host that was lost twice is excluded, so three losses involve two hosts or more: the trial is
their common cause.
"""


class BudgetSpentError(NothingFeasibleError):
    """The budget ended, or has no room for the next step, before anything was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBudget:
    """The whole command counts: profile runs, trials, playoff, verification.

    Attributes:
        whole_s: from the command's start to its end, in seconds; infinite without a limit.
        began_s: the command's start on ``clock``.
    """

    whole_s: float = math.inf
    began_s: float = field(default_factory=time.monotonic)
    clock: Callable[[], float] = time.monotonic

    @property
    def spent_s(self) -> float:
        return self.clock() - self.began_s

    @property
    def ending_s(self) -> float:
        """Seconds that are kept after all launches."""
        return min(_ENDING_S, _ENDING_SHARE * self.whole_s)

    @property
    def end_s(self) -> float:
        """Seconds since the command's start at which any launch is ended."""
        return self.whole_s - self.ending_s

    @property
    def deadline_s(self) -> float:
        """The same time on ``clock``."""
        return self.began_s + self.end_s

    @property
    def left_s(self) -> float:
        """Seconds that launches may still take."""
        return self.end_s - self.spent_s


def read_time_budget(
    request: LaunchRequest, cluster: ClusterSpec, began_s: float | None = None
) -> TimeBudget:
    """The user's time; money as time at the price of the machine.

    Raises:
        ConfigError: money is limited, but the machine has no price.
    """
    budget = request.limits
    price = None if budget.usd is None else choose_price(None, cluster)
    usd_per_hour = price.usd_per_gpu_hour * len(cluster.devices) if price else None
    whole_s = budget.limit_s(usd_per_hour)
    return TimeBudget(
        whole_s=math.inf if whole_s is None else whole_s,
        began_s=time.monotonic() if began_s is None else began_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A planned trial; ``alone``: it has all the memory of its place.

    ``losses`` has the lost hosts of each of its launches that ended with a loss; none for a
    preemption.
    """

    trial: Trial
    plan: LaunchPlan
    size: Size = field(default_factory=Size)
    prediction: Prediction | None = None
    alone: bool = False
    losses: tuple[tuple[str, ...], ...] = ()


class TrialQueue:
    """Trials in the order in which the study requested them, the best first.

    Smaller ones overtake the head if it finds no place. Once it has waited for as long as the
    longest trial took, nothing starts before it, so it waits at most twice as long.
    """

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._head_s: float | None = None
        """Time since which the head has waited."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._waiting)

    def add(self, waiting: Waiting) -> None:
        self._waiting.append(waiting)

    def put_back(self, waiting: Waiting) -> None:
        """Put a trial in front of all others, as it did not cause the loss of its place."""
        self._waiting.insert(0, waiting)
        self._head_s = None

    def next(
        self, pool: SlotPool, now_s: float, longest_s: float
    ) -> tuple[Waiting, Placement] | None:
        """The first trial that finds a place in the pool, which it has taken; None to wait.

        ``longest_s`` is the duration of the longest trial so far.
        """
        for index, waiting in enumerate(self._waiting):
            place = pool.take(waiting.size)
            if place is not None:
                del self._waiting[index]
                self._head_s = self._head_s if index else None
                return waiting, place
            if index == 0:
                self._head_s = now_s if self._head_s is None else self._head_s
                if now_s - self._head_s >= longest_s > 0.0:
                    return None
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
    """Limits of a trial that hangs; ``stall_s`` is the least silence between two steps.

    ``timeout_by`` is the option or key that sets ``timeout_s``.
    """

    timeout_s: float
    stall_s: float
    stall_steps: float = 10.0
    """A silence is a stall only beyond this many times the trial's longest step."""
    timeout_by: str = "--trial-timeout"
    pause_s: float = math.inf
    """The longest silence of a verification run in its evaluation or checkpoint; then its
    results count."""
    most_losses: int = MOST_LOSSES
    """Launches of a trial that end with a lost host or a preemption, until it counts as failed."""
    budget: TimeBudget = field(default_factory=TimeBudget)
    """Its deadline ends whatever runs."""


class Running:
    """A submitted trial."""

    def __init__(
        self,
        waiting: Waiting,
        *,
        job: Job,
        share: Share,
        place: Placement = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        plan, self._clock = job.plan, clock
        self.waiting, self.job, self.place = waiting, job, place
        self.trial, self.prediction = waiting.trial, waiting.prediction
        self.share, self.alone = share, waiting.alone
        self.cancelled = self.waits = False
        self.attempt = plan.task.attempt if plan.task else ""
        self._task = plan.task if plan.task and plan.task.most_steps else None
        self._planned, self._plan = plan.task, plan
        self._end_step = plan.task.end_step if plan.task else 0
        self._slowest = SlowestRanks(max(1, plan.world_size))
        self._tail = StepsTail(Path(plan.folder) / STEPS_FILE if plan.folder else None)
        self.weather = Weather(share.devices)
        self.started_s = clock()
        self.progress_s = self.started_s
        """Time of its last sign of progress."""
        self._longest_s = self._last_s = 0.0
        self._steps = 0
        self.made = 0
        """The last step that any rank has made."""

    @property
    def is_steerable(self) -> bool:
        """True if its ranks read the file that names their last step."""
        return self._task is not None

    @property
    def turns(self) -> int:
        """Number of turns that it has had in its group."""
        return self._planned.turns_before(self.made) if self._planned else self.made

    @property
    def step_s(self) -> tuple[float, ...]:
        """Duration of each step that all ranks have made, in seconds."""
        return self._slowest.step_s

    def new_steps(self) -> Iterator[StepRecord]:
        for step in self._tail.new():
            self._steps += 1
            self.made = max(self.made, step.step)
            self._last_s = step.wall_s
            self._longest_s = max(self._longest_s, step.wall_s)
            self.progress_s = self._clock()
            self._slowest.take(step)
            yield step
        if self._steps:
            self.weather.look()

    def end_at(self, step: int) -> None:
        """Have the ranks end at a step, unless that is their current last one."""
        if self._task is not None and step != self._end_step:
            self._end_step = step
            tell_end(self._task, step)

    def whole_steps(self, left_s: float) -> int:
        """The step that it reaches within ``left_s`` seconds, if none takes longer than before."""
        return self.made + int(min(left_s / (self._longest_s or left_s), _MOST_STEPS))

    def look_s(self) -> float:
        """Time at which to look for its next step; infinite if nothing depends on it."""
        if not self.is_steerable or self.cancelled:
            return float("inf")
        now = self._clock()
        if not self._steps:
            return now + max(0.02, _LATER * (now - self.started_s))
        due_s = now - self._tail.age_s() + _LATE * self._last_s
        return max(due_s, now + _LATER * self._last_s)

    def due_s(self, limits: TrialLimits) -> float:
        """Time at which it counts as hung; a launch that waits for its turn does not."""
        if self.cancelled or self.waits:
            return float("inf")
        if self.job.is_queued:  # its time begins when it has hosts
            self.started_s = self.progress_s = self._clock()
        due_s = self._due_s(limits, Compiled())
        is_late = self._clock() >= due_s
        return self._due_s(limits, compile_time(self._planned)) if is_late else due_s

    def _due_s(self, limits: TrialLimits, compiled: Compiled) -> float:
        """The same time; compilation by its ranks does not count as a hang."""
        deadline_s = self.started_s + limits.timeout_s + min(compiled.seconds, limits.timeout_s)
        if not self._steps:
            return deadline_s
        progress_s = max(self.progress_s, self._clock() - compiled.age_s)
        silence_s = max(limits.stall_s, limits.stall_steps * self._longest_s)
        if self._clock() < progress_s + limits.pause_s < progress_s + silence_s:
            silence_s = limits.pause_s  # to look then whether it is in a pause
        elif self._is_beside_steps():
            silence_s = min(silence_s, limits.pause_s)
        return min(deadline_s, progress_s + silence_s)

    def _is_beside_steps(self) -> bool:
        """True for a verification run whose ranks evaluate, save or have made their steps."""
        task = self._planned
        if task is None or not task.soak:
            return False
        ranks = started_ranks(task) if self._plan.alone else self._plan.world_size
        return is_beside_steps(task, ranks)

    def overdue(self, limits: TrialLimits) -> Failure:
        """The limit that it has overrun."""
        compiled_s = compile_time(self._planned).seconds
        if self._clock() - self.started_s >= limits.timeout_s + min(compiled_s, limits.timeout_s):
            return Failure(
                kind=FailureKind.TIMED_OUT,
                detail=timed_out_text(limits.timeout_s, limits.timeout_by, compiled_s),
            )
        silent_s = self._clock() - self.progress_s
        return Failure(
            kind=FailureKind.STALLED,
            detail=f"made {plural(self.made, 'step')}, then none for {silent_s:.0f} s "
            "(--stall-timeout)",
        )


def timed_out_text(timeout_s: float, timeout_by: str, compiled_s: float) -> str:
    """Detail of a launch that took too long."""
    not_counted_s = min(compiled_s, timeout_s)
    compiling = f", {not_counted_s:.0f} s of compiling not counted" if compiled_s >= 1.0 else ""
    return f"did not end within {timeout_s:g} s ({timeout_by}){compiling}"


def launch_loss(end: JobEnd) -> Failure | None:
    """Reason to repeat a launch elsewhere: a host failed, or an engine took it."""
    failure = end.outcome.failure if isinstance(end.outcome, FailedTrial) else None
    return failure if failure and failure.kind in _LOSSES else None


def lost_too_often(losses: Sequence[Sequence[str]], last: Failure) -> Failure:
    """The failure of a trial none of whose launches kept its hosts."""
    hosts = sorted({host for each in losses for host in each})
    named = f" ({', '.join(hosts)})" if hosts else ""
    return replace(
        last,
        kind=FailureKind.NODE_LOST,
        detail=f"all {len(losses)} launches of it lost their hosts{named}; last: {last.detail}",
    )


def out_of_time(made: int = 0) -> Failure:
    """Reason for ending a launch at the deadline of the budget, after ``made`` steps."""
    return Failure(kind=FailureKind.PREEMPTED, detail=f"ended after {plural(made, 'step')}")
