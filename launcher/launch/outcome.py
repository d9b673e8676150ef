"""Decides the outcome of a launch from exit codes and the ranks' own results."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, TypeAlias

from autoconf_launch.autotuner.space import FailedTrial, Outcome
from autoconf_launch.core import (
    Candidate,
    Failure,
    FailureKind,
    Layout,
    MemoryUse,
    Mode,
    RankResult,
    RankTask,
    Recompute,
    even_pipeline_split,
    plural,
)

from ..plan import LaunchPlan
from .planning import why_silent
from .rank_results import (
    LogStart,
    RankResults,
    asides_seen,
    largest_memory,
    last_said,
    measure,
    printed_error,
    read_rank_results,
    started_ranks,
    with_ended,
    with_unfinished,
)

_USAGE = 2
"""Exit code of argparse, click and most programs for a command line they do not understand."""


def how_it_died(code: int, error: str = "") -> str:
    """The meaning of an exit code other than 0; negative if a signal ended the process.

    ``error``: the error in its log.
    """
    if code > 0:
        hint = " (as of a script that refuses its arguments)" if code == _USAGE else ""
        why = f": {error}" if error else " and did not report why"
        return f"ended with exit code {code}{hint}{why}"
    if -code == signal.SIGKILL:
        return "was killed by SIGKILL; the kernel may have run out of memory (see dmesg)"
    return f"was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """``SIGTERM`` for 15, ``signal 99`` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def who_left(ranks: Sequence[int]) -> str:
    """A phrase on ranks that ended well before another failed; empty if there are none."""
    if not ranks:
        return ""
    names = " and ".join(map(str, ranks))
    return f"rank{'s' * (len(ranks) > 1)} {names} had ended without an error before it"


Checked: TypeAlias = tuple[tuple[str, str], ...]
"""Knobs that are compared, with the words that request them."""

_APPLIED = (
    *("zero_stage", "data_parallel", "tensor_parallel", "context_parallel", "expert_parallel"),
    *("sequence_parallel", "pipeline_parallel", "virtual_pipeline", "pipeline_split"),
    *("micro_batch", "micro_batch_split", "accumulation", "recompute"),
)
"""Fields of a layout that a rank finds on its live model, in addition to extras."""


def mismatch(
    result: RankResult, expected: Candidate | None, checked: Checked | None
) -> Failure | None:
    """The failure of a rank that ran another strategy; None if it matches or is unknown."""
    if expected is not None and checked is not None:
        return _ignored_knobs(result, expected, checked)
    applied = result.applied
    if expected is None or (applied is None and not result.steps):
        return None
    if applied is None:
        detail = (
            "the script never applied its configuration; "
            "pass it to autoconf_launch.runtime.initialize"
        )
        return Failure(kind=FailureKind.NOT_APPLIED, detail=detail)
    ran = {name: getattr(applied, name) for name in _APPLIED} | dict(applied.extras)
    layout = _without_even_split(expected.layout)
    asked = {name: getattr(layout, name) for name in _APPLIED} | dict(expected.extras)
    wrong = [
        f"{name} {_value(ran[name]) if name in ran else 'missing'} instead of {_value(value)}"
        for name, value in asked.items()
        if name not in ran or ran[name] != value
    ]
    if not wrong:
        return None
    return Failure(
        kind=FailureKind.NOT_APPLIED,
        detail=f"ran with {', '.join(wrong)}",
        ran_micro_batch=_smaller(ran, asked),
    )


def _without_even_split(layout: Layout) -> Layout:
    """A split as ranks see it: None if it is the default split."""
    split = layout.pipeline_split
    if split is None or split != even_pipeline_split(sum(split), len(split)):
        return layout
    return replace(layout, pipeline_split=None)


def _ignored_knobs(result: RankResult, expected: Candidate, checked: Checked) -> Failure | None:
    """Knobs that an external script set otherwise; the probe could not count a 0."""
    if result.applied is None:
        return None
    found = {name: getattr(result.applied, name) for name, _ in checked}
    asked = {name: getattr(expected.layout, name) for name, _ in checked}
    wrong = [
        f"{name} {_value(found[name])} instead of {_value(asked[name])} (asked by {word})"
        for name, word in checked
        if _differs(name, found[name], asked[name])
    ]
    if not wrong:
        return None
    if result.caught is not None and result.caught.kind is FailureKind.OUT_OF_MEMORY:
        return result.caught  # and then went on with less
    detail = f"the script ran with {', '.join(wrong)}; {result.applied.description}"
    smaller = _smaller(found, asked)
    return Failure(kind=FailureKind.NOT_APPLIED, detail=detail, ran_micro_batch=smaller)


def _smaller(ran: Mapping[str, Any], asked: Mapping[str, Any]) -> int | None:
    """The micro-batch that ran, if it is smaller than requested; 0 was not counted."""
    micro: int = ran.get("micro_batch", 0)
    return micro if 0 < micro < asked["micro_batch"] else None


def _differs(name: str, found: object, asked: object) -> bool:
    """True if a knob is seen to differ; a switch does not show how much it recomputes."""
    if found is None or (found == 0 and name != "zero_stage"):
        return False
    if name == "recompute":
        return (found is Recompute.NONE) != (asked is Recompute.NONE)
    return found != asked


def _value(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


_DECISIVE = (
    FailureKind.OUT_OF_MEMORY,
    FailureKind.NAN,
    FailureKind.BAD_CONFIG,
    FailureKind.NOT_APPLIED,
)
"""Kinds that win over all others, in this order, whichever was first."""

_SUDDEN_SLACK_S = 0.25
"""A peer can report its broken connection before the death that broke it is seen."""

_CAUSED_BY_OTHERS = {signal.SIGTERM, signal.SIGINT, signal.SIGABRT}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """The end of one rank's process; ``code`` is negative if a signal ended it."""

    code: int
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The launch was cancelled; events before ``unix_s`` still count."""

    reason: Failure
    unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksEnd:
    """The end of all processes of a launch.

    Attributes:
        exits: of each rank, in the plan's order.
        terminated_unix_s: time at which the other ranks were ended, after a failure or on request;
            later deaths show nothing. None: all ended by themselves.
    """

    exits: tuple[RankExit, ...]
    terminated_unix_s: float | None = None
    cancelled: Cancelled | None = None

    @property
    def told_to_end(self) -> frozenset[int]:
        """Numbers of the ranks that were ended because another rank had failed."""
        since_unix_s = self.terminated_unix_s
        if since_unix_s is None:
            return frozenset()
        return frozenset(n for n, e in enumerate(self.exits) if e.code and e.unix_s > since_unix_s)

    @property
    def exit_code(self) -> int:
        """The code of the first rank that failed, as in a shell (128 + signal); 0 if none did."""
        failed = [rank for rank in self.exits if rank.code != 0]
        if not failed:
            return 0
        code = min(failed, key=lambda rank: rank.unix_s).code
        return code if code > 0 else 128 - code


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """A possible reason for the missing measurement."""

    failure: Failure
    unix_s: float
    memory: MemoryUse | None = None
    shown: tuple[str, ...] = ()
    """Lines of a log that show it."""


def read_outcome(plan: LaunchPlan, end: RanksEnd, log_start: LogStart | None = None) -> Outcome:
    """The outcome of a launch that has ended.

    Out of memory on any rank wins, then ``nan``, ``bad_config`` and ``not_applied``; otherwise the
    earliest cause, except causes that a peer's end made, which count if there is no other. In
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
    causes = _reported_causes(plan.task, results, plan.expected, plan.checked)
    if not causes:
        strict = any(rank.code for rank in end.exits) and not plan.task.soak
        measured = measure(plan.task, results, strict=strict)  # a script may end in its soak
        if measured is not None:
            return measured
    folder = plan.folder or plan.task.folder
    causes = [*causes, *_deaths(results, end, partial(_reason, folder, log_start, ranks))]
    if end.cancelled is not None:
        causes = [cause for cause in causes if cause.unix_s <= end.cancelled.unix_s]
        causes.append(_Cause(failure=end.cancelled.reason, unix_s=end.cancelled.unix_s))
    cause = _first(causes) or _Cause(failure=_no_steps(plan, plan.task, results), unix_s=0.0)
    shown = () if cause.failure.lost_peer else cause.failure.log_tail or cause.shown
    left = who_left(_left_before(cause, results, end))
    detail = "; ".join(filter(None, (cause.failure.detail, left)))
    return FailedTrial(
        failure=replace(cause.failure, detail=detail, log_tail=shown),
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
    """The outcome of a launch whose controller died, if its ranks' results settle it.

    A crash settles nothing (the ranks may have died with their controller): None, run it again.
    Without ``world_size`` the ranks' results give their number.
    """
    results = read_rank_results(task, world_size or started_ranks(task))
    if any(result is None for result in results):
        return None
    cause = _first(_reported_causes(task, results, expected, checked))
    if cause is None:
        return measure(task, results, strict=True)
    if cause.failure.kind not in _DECISIVE:
        return None
    return FailedTrial(
        failure=cause.failure,
        memory=cause.memory or largest_memory(results),
        asides=asides_seen(task, results),
    )


def _reported_causes(
    task: RankTask, results: RankResults, expected: Candidate | None, checked: Checked | None
) -> list[_Cause]:
    causes = []
    for result in results:
        if result is None:
            continue
        failure = result.failure or _other_ranks(task, result, len(results))
        failure = failure or mismatch(result, expected, checked) or _nan(result)
        failure = failure or _impossible_time(result)
        if failure is not None:
            where = f"rank {result.rank}: " if len(results) > 1 else ""
            said = replace(failure, detail=where + failure.detail)
            causes.append(_Cause(failure=said, unix_s=result.ended_unix_s, memory=result.memory))
    return causes


def _other_ranks(task: RankTask, result: RankResult, started: int) -> Failure | None:
    """The failure of a measured launch that ran another number of ranks than were started."""
    if task.mode is not Mode.MEASURE or result.world_size == started:
        return None
    detail = f"the script ran with {plural(result.world_size, 'rank')} instead of {started}"
    return Failure(kind=FailureKind.NOT_APPLIED, detail=detail)


_LONGEST_S = 1e9
"""Longest time that counts as a step's, as in the journal."""


def _impossible_time(result: RankResult) -> Failure | None:
    times_s = [(f"step {record.step}", record.wall_s) for record in result.steps]
    if result.cut is not None:
        times_s += [("a micro-batch", time_s) for time_s in result.cut.micro_s]
    for what, time_s in times_s:
        if not 0.0 < time_s < _LONGEST_S:
            detail = f"{what} took {time_s:g} s by the clock of its process, so no time counts"
            return Failure(kind=FailureKind.NO_STEPS, detail=detail)
    return None


def _nan(result: RankResult) -> Failure | None:
    for record in result.steps:
        if record.loss is not None and math.isnan(record.loss):
            detail = f"the loss is not a number at step {record.step}"
            return Failure(kind=FailureKind.NAN, detail=detail)
    return None


_Reason: TypeAlias = Callable[[int, int], tuple[str, tuple[str, ...]]]


def _reason(
    folder: str, start: LogStart | None, ranks: int, rank: int, exit_code: int
) -> tuple[str, tuple[str, ...]]:
    """The error that a rank has left in the log, and the lines that show why it ended.

    After a signal an error in a shared log is another rank's.
    """
    if exit_code < 0 and ranks > 1:
        return "", ()
    lines = printed_error(folder, start, ranks=ranks, rank=rank)
    if lines or exit_code < 0:
        return next(iter(lines[-1:]), ""), lines
    return "", last_said(folder, start)


def _deaths(results: RankResults, end: RanksEnd, reason: _Reason) -> list[_Cause]:
    """Deaths of ranks that did not report why and were not requested."""
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
        error, shown = reason(rank, exit_.code)
        detail = f"rank {rank} {how_it_died(exit_.code, error)}"
        causes.append(
            _Cause(
                failure=Failure(kind=FailureKind.CRASHED, detail=detail),
                unix_s=exit_.unix_s - _SUDDEN_SLACK_S * sudden,
                memory=result.memory if result is not None else None,
                shown=shown,
            )
        )
    return causes


def _left_before(cause: _Cause, results: RankResults, end: RanksEnd) -> list[int]:
    """Ranks whose own end, without an error, broke a peer."""
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


_NO_MODULE = (
    "its optimizer trains no weights of a torch.nn.Module that was called (make the tensors "
    "nn.Parameter of a module, and call that module, not its methods, to compute the loss)"
)
"""No forward pass entered a module; DDP, FSDP and the memory model need modules."""


def _no_steps(plan: LaunchPlan, task: RankTask, results: RankResults) -> Failure:
    silent = [rank for rank, result in enumerate(results) if result is None]
    made = max((r.step for result in results if result for r in result.steps), default=0)
    if plan.checked is not None and len(silent) == len(results):
        detail = why_silent(task)
    elif task.mode is Mode.PROFILE and plan.checked is not None and made:
        detail = _NO_MODULE
    elif task.mode is Mode.PROFILE:
        detail = "the script ended before its model could be described"
    elif silent:
        detail = f"rank {silent[0]} ended without reporting an optimizer step"
    else:
        detail = (
            f"the script ended after {plural(made, 'optimizer step')}, before start_profile_step "
            f"{task.start_step}; it must make at least {task.end_step}"
        )
    return Failure(kind=FailureKind.NO_STEPS, detail=detail)


def _first(causes: Sequence[_Cause]) -> _Cause | None:
    def order(cause: _Cause) -> tuple[int, bool, float]:
        kind = cause.failure.kind
        place = _DECISIVE.index(kind) if kind in _DECISIVE else len(_DECISIVE)
        return place, cause.failure.lost_peer, cause.unix_s

    return min(causes, key=order, default=None)
