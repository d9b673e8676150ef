"""The loop around a study: ask, run, watch, write down, tell.

It waits for jobs and never polls in a fixed rhythm; it wakes for a deadline or a heartbeat.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Protocol

from autoconf_launch.autotuner.playoff import Decider
from autoconf_launch.autotuner.search import StopReason
from autoconf_launch.autotuner.space import (
    Conditions,
    FailedTrial,
    Outcome,
    Prediction,
    Record,
    Trial,
)
from autoconf_launch.core import Failure, FailureKind, HardwareError, plural

from ..engines import Backend, JobEnd
from ..events import Listener, Note, StepSeen, TrialFinished, TrialStarted
from ..hosts import WHOLE, Placement, Share, SlotPool
from ..plan import LaunchPlan
from ..results import HEARTBEAT_S, Earlier, Journal, Started
from .running import (
    Running,
    TrialLimits,
    TrialQueue,
    Waiting,
    launch_loss,
    lost_too_often,
    out_of_time,
)
from .turns import TurnGroup

__all__ = ["Controller", "TrialIO", "TrialLimits"]

_MOST_WAITING = 64
"""Trials to request before there is room, so that smaller ones can overtake."""

_NOTHING_REPORTED = FailedTrial(
    failure=Failure(kind=FailureKind.NO_STEPS, detail="the launch reported nothing")
)


class TrialIO(Protocol):
    """Turns trials into plans and outcomes into files."""

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        """Write the trial's request; returns the plan that runs it."""

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        """The outcome of an earlier launch whose ranks all reported, if there is one."""

    def predict(self, trial: Trial) -> Prediction | None: ...

    def complete(self, outcome: Outcome) -> Outcome:
        """Add facts that the ranks cannot know."""

    def finish(self, record: Record) -> None: ...


class Controller:
    """Runs one study, or the playoff after it, on one backend; a second ``run`` goes on."""

    def __init__(
        self,
        study: Decider,
        backend: Backend,
        trial_io: TrialIO,
        *,
        journal: Journal,
        listener: Listener,
        limits: TrialLimits,
    ) -> None:
        self._study = study
        self._backend = backend
        self._trial_io = trial_io
        self._journal = journal
        self._listener = listener
        self._limits = limits
        self._budget, self._clock = limits.budget, limits.budget.clock
        self._running: list[Running] = []
        self._pool = SlotPool.of_shares(WHOLE)
        self._queue = TrialQueue()
        self._least = self._pool.usual
        self._longest_s = 0.0
        self._to_repeat: list[Trial] = []
        self._turns = TurnGroup(self._cancel, self._has_reported, listener)
        self._orphans: dict[str, Started] = {}
        self._earlier_parts_s = self._before_s = 0.0
        self._start_s = self._clock()

    @property
    def elapsed_s(self) -> float:
        """Duration of this study, earlier controllers included, in seconds."""
        return self._before_s + self._clock() - self._start_s

    def resume(self, earlier: Earlier, *, before_s: float = 0.0) -> None:
        """Replay an earlier controller's records into the study, after ``before_s`` seconds."""
        self._earlier_parts_s = self._before_s = before_s
        self._orphans = {orphan.name: orphan for orphan in earlier.orphans}
        for record, time_s in zip(earlier.records, earlier.times_s, strict=True):
            self._before_s = before_s + time_s
            self._study.tell(record)
            self._announce(record, resumed=True)

    def take_known(self, trial: Trial, outcome: Outcome) -> None:
        """Record the outcome of a launch that was made before the study, such as a profile run."""
        self._finish(trial, self._trial_io.predict(trial), outcome, wall_s=0.0)

    def run(self, pool: SlotPool | Sequence[Share] = WHOLE) -> StopReason:
        """Launch trials until the study stops; whatever ends it, no job is left running.

        Each trial gets a place in the pool, or one of the shares.

        Raises:
            HardwareError: too few hosts are left for a trial.
        """
        self._pool = pool if isinstance(pool, SlotPool) else SlotPool.of_shares(pool)
        self._least = self._pool.usual
        try:
            for orphan in self._orphans.values():
                self._backend.end_orphan(orphan.handle or "", orphan.host)
            while True:
                self._start_trials()
                if not self._running:
                    reason = self._study.stop_reason()
                    if reason is not None:
                        return reason
                    continue
                self._wait()
        finally:
            self._cancel_all()

    def _start_trials(self) -> None:
        """Fill the free slots; a trial that ran out of a share's memory comes first, by itself."""
        if self._to_repeat:
            if not self._running:
                self._plan(self._to_repeat.pop(0), alone=True)
                self._start_waiting()
            return
        self._start_waiting()
        is_short = True
        while is_short:
            trials = self._study.ask(self._count_wanted(), self._budget.spent_s)
            for trial in trials:
                if not self._finish_adopted(trial):
                    self._plan(trial, alone=trial.number == 0 and not trial.again)
            self._start_waiting()
            is_short = bool(trials) and len(self._queue) > 0  # smaller ones may find a place

    def _count_wanted(self) -> int:
        """Number of trials to request: as many small ones as there is room for."""
        if self._turns.is_broken:
            return 1
        return max(0, min(self._pool.room(self._least), _MOST_WAITING - len(self._queue)))

    def _plan(self, trial: Trial, *, alone: bool) -> None:
        plan = self._trial_io.plan(trial, uuid.uuid4().hex)
        size = self._pool.size_of(plan) if self._pool.size_of else self._pool.usual
        self._least = min(self._least, size, key=lambda one: one.nodes * one.slots)
        prediction = self._trial_io.predict(trial)
        waiting = Waiting(trial=trial, plan=plan, size=size, prediction=prediction, alone=alone)
        self._queue.add(waiting)

    def _start_waiting(self) -> None:
        ages_s = (self._clock() - running.started_s for running in self._running)
        longest_s = max((self._longest_s, *ages_s))
        while found := self._queue.next(self._pool, self._clock(), longest_s):
            self._start(*found)
        for waiting in self._queue:
            if not self._pool.can_hold(waiting.size):
                raise _no_host_left(waiting, self._pool.set_aside)

    def _start(self, waiting: Waiting, place: Placement) -> None:
        trial, share = waiting.trial, self._pool.share_of(place)
        plan = share.place(waiting.plan, alone=waiting.alone)
        job = self._backend.submit(plan)
        self._journal.write_started(
            name=trial.name,
            number=trial.number,
            attempt=plan.task.attempt if plan.task else "",
            handle=job.handle,
            before_s=self._earlier_parts_s,
        )
        self._running.append(
            Running(waiting, job=job, share=share, place=place, clock=self._clock)
        )
        self._listener(TrialStarted(trial=trial, prediction=waiting.prediction))

    def _finish_adopted(self, trial: Trial) -> bool:
        """Use the outcome of a dead controller's launch, if its ranks had reported."""
        is_new = trial.final or trial.again  # it is about the machine as it is now
        orphan = None if is_new else self._orphans.pop(trial.name, None)
        outcome = self._trial_io.adopt(trial, orphan.attempt) if orphan else None
        if outcome is None or (
            self._pool.divides_memory and _has_failed(outcome, FailureKind.OUT_OF_MEMORY)
        ):
            return False
        prediction = self._trial_io.predict(trial)
        self._finish(trial, prediction, outcome, wall_s=0.0, resumed=True)
        return True

    def _wait(self) -> None:
        wake_s = min(min(self._due_s(r), r.look_s()) for r in self._running)
        longest_s = min(HEARTBEAT_S, self._limits.stall_s)  # steps are seen when we wake
        pause_s = min(max(wake_s - self._clock(), 0.0), longest_s)
        self._backend.wait([running.job for running in self._running], pause_s)
        self._journal.heartbeat()
        for running in self._running:
            self._watch(running)
        self._turns.look(self._running)
        for running in self._running:
            self._cancel_if_due(running)
        ends = self._backend.poll([running.job for running in self._running])
        ended = [(r, end) for r, end in zip(self._running, ends, strict=True) if end]
        self._running = [r for r in self._running if all(r is not done for done, _ in ended)]
        for running, end in ended:
            self._pool.give_back(running.place)
            self._longest_s = max(self._longest_s, end.wall_s)
            if not self._was_lost(running, end):
                self._take_end(running, end.outcome or _NOTHING_REPORTED, end.wall_s)

    def _was_lost(self, running: Running, end: JobEnd) -> bool:
        """True if a host failed, or an engine took it: the trial is launched again elsewhere."""
        trial, loss = running.trial, launch_loss(end)
        if running.cancelled or loss is None:
            return False
        losses = (*running.waiting.losses, end.lost_hosts)
        if len(losses) >= self._limits.most_losses:
            self._pool.forgive(chain(*losses[:-1]))
            failed = FailedTrial(failure=lost_too_often(losses, loss))
            self._take_end(running, failed, end.wall_s)
            return True
        aside = self._pool.blame(end.lost_hosts)
        text = f"{trial.name} is launched again: {loss.detail}."
        text += "".join(f" Host {host} failed twice and gets no more trials." for host in aside)
        self._listener(Note(text=text, warning=True))
        plan = self._trial_io.plan(trial, uuid.uuid4().hex)
        self._queue.put_back(replace(running.waiting, plan=plan, losses=losses))
        self._turns.dissolve(trial, self._running)
        return True

    def _take_end(self, running: Running, outcome: Outcome, wall_s: float) -> None:
        trial = running.trial
        lacked = running.share.memory_bytes is not None and not running.alone
        if lacked and _has_failed(outcome, FailureKind.OUT_OF_MEMORY):
            self._to_repeat.append(trial)
            return
        trial, is_repeated = self._turns.take_end(trial, outcome, self._running)
        if is_repeated:
            self._to_repeat.append(trial)
            return
        self._finish(
            trial,
            running.prediction,
            outcome,
            wall_s=wall_s,
            conditions=running.weather.conditions(),
        )

    def _watch(self, running: Running) -> None:
        for step in running.new_steps():
            self._listener(StepSeen(trial=running.trial, step=step))
        if running.is_steerable and running.step_s:
            end_step = self._study.end_step(running.trial, running.step_s)
            if end_step is not None:
                in_time = running.whole_steps(max(0.0, self._budget.left_s))
                running.end_at(min(end_step, max(in_time, running.made)))

    def _due_s(self, running: Running) -> float:
        if running.cancelled:
            return math.inf
        return min(self._budget.deadline_s, running.due_s(self._limits))

    def _cancel_if_due(self, running: Running) -> None:
        if self._clock() < self._due_s(running):
            return
        if self._clock() >= self._budget.deadline_s:
            self._cancel(running, out_of_time(running.made))
            return
        self._cancel(running, running.overdue(self._limits))
        self._turns.dissolve(running.trial, self._running)

    def _cancel(self, running: Running, reason: Failure) -> None:
        running.cancelled = True
        self._backend.cancel(running.job, reason)

    def _finish(
        self,
        trial: Trial,
        prediction: Prediction | None,
        outcome: Outcome,
        *,
        wall_s: float,
        conditions: Conditions | None = None,
        resumed: bool = False,
    ) -> None:
        if _has_failed(
            outcome, FailureKind.PREEMPTED
        ):  # for another trial's sake: it has not been tried
            self._study.tell(Record(trial=trial, outcome=outcome, wall_s=wall_s))
            return
        record = Record(
            trial=trial,
            outcome=self._trial_io.complete(outcome),
            wall_s=wall_s,
            prediction=prediction,
            conditions=conditions,
        )
        self._journal.write_record(record)
        self._trial_io.finish(record)
        self._study.tell(record)
        self._announce(record, resumed=resumed)

    def _has_reported(self, running: Running) -> bool:
        """True if its ranks have reported, as after the last turn of a group."""
        return self._trial_io.adopt(running.trial, running.attempt) is not None

    def _announce(self, record: Record, *, resumed: bool) -> None:
        self._listener(
            TrialFinished(
                record=record, best=self._study.best, elapsed_s=self.elapsed_s, resumed=resumed
            )
        )

    def _cancel_all(self) -> None:
        reason = Failure(kind=FailureKind.PREEMPTED, detail="the launcher was interrupted")
        for running in self._running:
            self._backend.cancel(running.job, reason)
        while self._running:
            jobs = [running.job for running in self._running]
            self._backend.wait(jobs, HEARTBEAT_S)
            ends = self._backend.poll(jobs)
            self._running = [r for r, end in zip(self._running, ends, strict=True) if not end]


def _no_host_left(waiting: Waiting, aside: Sequence[str]) -> HardwareError:
    return HardwareError(
        f"{waiting.trial.name} needs {plural(waiting.size.nodes, 'host')}, but too few are left: "
        f"{', '.join(aside)} failed twice. What was measured is kept; repair or exclude them and "
        "start again."
    )


def _has_failed(outcome: Outcome, kind: FailureKind) -> bool:
    return isinstance(outcome, FailedTrial) and outcome.failure.kind is kind
