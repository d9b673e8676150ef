"""Decides what came of a launch from exit codes and the ranks' own results.

Not: a reader of logs; their last lines are attached to a failure and never looked into.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.trial import FailedTrial, Outcome
from autoconf_launch.core import (
    Candidate,
    Failure,
    FailureKind,
    MemoryUse,
    Mode,
    RankResult,
    RankTask,
)

from ..plan import LaunchPlan
from ..scripts.probe_environment import why_silent
from .deaths import how_it_died, who_left
from .log_tail import LogStart, printed_error, read_log_tail
from .mismatch import Checked, mismatch
from .rank_results import (
    RankResults,
    asides_seen,
    largest_memory,
    measure,
    read_rank_results,
    started_ranks,
    with_ended,
    with_unfinished,
)

_DECISIVE = (
    FailureKind.OUT_OF_MEMORY,
    FailureKind.NAN,
    FailureKind.BAD_CONFIG,
    FailureKind.NOT_APPLIED,
)
"""Kinds that win over every other one, in this order, whoever was first."""

_SUDDEN_SLACK_S = 0.25
"""A peer can write down its broken connection before the death that broke it is seen."""

_CAUSED_BY_OTHERS = {signal.SIGTERM, signal.SIGINT, signal.SIGABRT}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """How one rank's process ended; ``code`` is negative where a signal ended it."""

    code: int
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Somebody ended the launch; what had happened before ``unix_s`` still counts."""

    reason: Failure
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksEnd:
    """How all processes of a launch ended.

    Attributes:
        exits: of each rank, in the plan's order.
        terminated_unix_s: when the others were told to end, after a failure or on request;
            later deaths say nothing. None: all ended by themselves.
        cancelled: why it was ended on request.
    """

    exits: tuple[RankExit, ...]
    terminated_unix_s: float | None = None
    cancelled: Cancelled | None = None

    @property
    def told_to_end(self) -> frozenset[int]:
        """Numbers of the ranks that were ended because another one had failed."""
        since_unix_s = self.terminated_unix_s
        if since_unix_s is None:
            return frozenset()
        return frozenset(n for n, e in enumerate(self.exits) if e.code and e.unix_s > since_unix_s)

    @property
    def exit_code(self) -> int:
        """Of the first rank that failed, as a shell gives it (128 + signal); 0 if none did."""
        failed = [rank for rank in self.exits if rank.code != 0]
        if not failed:
            return 0
        code = min(failed, key=lambda rank: rank.unix_s).code
        return code if code > 0 else 128 - code


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """Something that may be why there is no measurement."""

    failure: Failure
    unix_s: float
    memory: MemoryUse | None = None


def read_outcome(plan: LaunchPlan, end: RanksEnd, log_start: LogStart | None = None) -> Outcome:
    """What came of a launch that has ended.

    Out of memory on any rank wins, then ``nan``, ``bad_config`` and ``not_applied``; otherwise
    the earliest cause, so that a peer's broken connection does not hide what broke it. In
    profile mode a measurement may have no steps.

    Raises:
        ValueError: the plan has no task, so its ranks report nothing.
    """
    if plan.task is None:
        raise ValueError(f"plan {plan.name!r} has no task, so there is no outcome to read.")
    ranks = started_ranks(plan.task) if plan.alone else plan.world_size
    results = read_rank_results(plan.task, ranks)
    if end.cancelled is not None:
        results = with_unfinished(plan.task, results)
    else:
        results = with_ended(plan.task, results, end.told_to_end)
    causes = _reported(results, plan.expected, plan.checked)
    if not causes:
        strict = any(rank.code for rank in end.exits) and not plan.task.soak
        measured = measure(plan.task, results, strict=strict)  # a script may end in its soak
        if measured is not None:
            return measured
    folder = plan.folder or plan.task.folder
    causes = [*causes, *_unreported(results, end, printed_error(folder, log_start, ranks=ranks))]
    if end.cancelled is not None:
        causes = [cause for cause in causes if cause.unix_s <= end.cancelled.unix_s]
        causes.append(_Cause(failure=end.cancelled.reason, unix_s=end.cancelled.unix_s))
    cause = _first(causes) or _Cause(failure=_no_steps(plan, plan.task, results), unix_s=0.0)
    tail = cause.failure.log_tail or read_log_tail(folder, log_start)
    left = who_left(_left_before(cause, results, end))
    detail = "; ".join(filter(None, (cause.failure.detail, left)))
    return FailedTrial(
        failure=replace(cause.failure, detail=detail, log_tail=tail),
        memory=cause.memory or largest_memory(results),
        asides=asides_seen(plan.task, results),
    )


def adopt(
    task: RankTask,
    *,
    world_size: int | None,
    expected: Candidate | None = None,
    checked: Checked | None = None,
) -> Outcome | None:
    """The outcome of a launch whose controller died, where its ranks' results settle it.

    A crash settles nothing (the ranks may have died with their controller): None, run it again.
    Without ``world_size`` the ranks themselves say how many they were.
    """
    results = read_rank_results(task, world_size or started_ranks(task))
    if any(result is None for result in results):
        return None
    cause = _first(_reported(results, expected, checked))
    if cause is None:
        return measure(task, results, strict=True)
    if cause.failure.kind not in _DECISIVE:
        return None
    tail = cause.failure.log_tail or read_log_tail(task.folder)
    return FailedTrial(
        failure=replace(cause.failure, log_tail=tail),
        memory=cause.memory or largest_memory(results),
        asides=asides_seen(task, results),
    )


def _reported(
    results: RankResults, expected: Candidate | None, checked: Checked | None
) -> list[_Cause]:
    """What the ranks themselves say went wrong."""
    causes = []
    for result in results:
        if result is None:
            continue
        failure = result.failure or mismatch(result, expected, checked) or _nan(result)
        if failure is not None:
            said = replace(failure, detail=_named(result.rank, len(results), failure.detail))
            causes.append(_Cause(failure=said, unix_s=result.ended_unix_s, memory=result.memory))
    return causes


def _nan(result: RankResult) -> Failure | None:
    for record in result.steps:
        if record.loss is not None and math.isnan(record.loss):
            detail = f"the loss is not a number at step {record.step}"
            return Failure(kind=FailureKind.NAN, detail=detail)
    return None


def _unreported(results: RankResults, end: RanksEnd, said: str) -> list[_Cause]:
    """Deaths of ranks that did not report why, and that nobody asked for.

    ``said``: the error in their log.
    """
    causes = []
    asked_for = end.told_to_end
    for rank, (result, exit_) in enumerate(zip(results, end.exits, strict=False)):
        if (
            exit_.code == 0
            or rank in asked_for
            or (result is not None and result.failure is not None)
        ):
            continue
        sudden = exit_.code < 0 and -exit_.code not in _CAUSED_BY_OTHERS
        detail = f"rank {rank} {how_it_died(exit_.code, said)}"
        causes.append(
            _Cause(
                failure=Failure(kind=FailureKind.CRASHED, detail=detail),
                unix_s=exit_.unix_s - _SUDDEN_SLACK_S * sudden,
                memory=result.memory if result is not None else None,
            )
        )
    return causes


def _left_before(cause: _Cause, results: RankResults, end: RanksEnd) -> list[int]:
    """Ranks whose peer broke down because they had gone, without an error of their own."""
    if cause.failure.kind is not FailureKind.CRASHED:
        return []
    latest_unix_s = cause.unix_s + _SUDDEN_SLACK_S
    left = []
    for rank, (result, exit_) in enumerate(zip(results, end.exits, strict=False)):
        gone = exit_.code == 0 if result is None else result.ended_early
        since_unix_s = exit_.unix_s if result is None else result.ended_unix_s
        if gone and since_unix_s <= latest_unix_s:
            left.append(rank)
    return left


def _no_steps(plan: LaunchPlan, task: RankTask, results: RankResults) -> Failure:
    silent = [rank for rank, result in enumerate(results) if result is None]
    made = max((r.step for result in results if result for r in result.steps), default=0)
    if plan.checked is not None and len(silent) == len(results):
        detail = why_silent(task)
    elif task.mode is Mode.PROFILE:
        detail = "the script ended before its model could be described"
    elif silent:
        detail = f"rank {silent[0]} ended without reporting an optimizer step"
    else:
        detail = (
            f"the script ended after {made} optimizer steps, before start_profile_step "
            f"{task.start_step}; it must make at least {task.end_step}"
        )
    return Failure(kind=FailureKind.NO_STEPS, detail=detail)


def _first(causes: Sequence[_Cause]) -> _Cause | None:
    def order(cause: _Cause) -> tuple[int, float]:
        kind = cause.failure.kind
        return (_DECISIVE.index(kind) if kind in _DECISIVE else len(_DECISIVE), cause.unix_s)

    return min(causes, key=order, default=None)


def _named(rank: int, world_size: int, detail: str) -> str:
    return detail if world_size == 1 else f"rank {rank}: {detail}"
