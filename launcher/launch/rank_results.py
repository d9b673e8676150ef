"""The ranks' reports of a launch, timed, and the lines of its two logs.

Nothing is decided from a log; its lines are shown next to a failure.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from autoconf_launch.autotuner.space import Measurement
from autoconf_launch.core import (
    MODEL_INFO_FILE,
    Asides,
    CutStep,
    MemoryUse,
    Mode,
    RankResult,
    RankTask,
    ResultsFolderError,
    StepRecord,
    compile_sign,
    of_all_ranks,
    result_file,
    sign_path,
    unfinished_sign,
)

from ..results import open_file, read_file, read_result

STDOUT_LOG = "stdout.log"
STDERR_LOG = "stderr.log"
TAIL_LINES = 15
_TAIL_BYTES = 16384
_LONGEST_LINE = 500
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.")
_OF_A_RANK = re.compile(r"^\[rank(\d+)\]: ?")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: |$)")
_USAGE_ERROR = re.compile(r"\S+: error: ")
_INDENT = "  "
_TRACEBACK = "Traceback (most recent call last)"
_NO_REASON = re.compile(
    r"warn|^\[W|\d+%\||\bit/s\b|\bs/it\b|connection|broken pipe|\bpeer\b|nccl|gloo|ProcessGroup"
    r"|TCPStore|^frame #",
    re.IGNORECASE,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
RankResults: TypeAlias = tuple[RankResult | None, ...]
"""Results of the ranks in order; None for a rank that reported nothing in this attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """The start of a launch's part of the two logs; earlier attempts come before it."""

    stdout_bytes: int = 0
    stderr_bytes: int = 0


def read_log_tail(folder: str | Path, start: LogStart | None = None) -> tuple[str, ...]:
    """The last lines of ``stderr.log``, or of ``stdout.log`` if that has none.

    Blank lines, control characters and overwritten progress bars are skipped; only the end of a
    file is read.
    """
    start = start or LogStart()
    return file_tail(Path(folder, STDERR_LOG), start.stderr_bytes) or file_tail(
        Path(folder, STDOUT_LOG), start.stdout_bytes
    )


def printed_error(
    folder: str | Path, start: LogStart | None = None, *, ranks: int = 1, rank: int = 0
) -> tuple[str, ...]:
    """The end of a traceback, or the refusal of an argument; empty if there is none.

    For one rank the last one, as earlier ones may have been caught; if several ranks share a log,
    the first that torch does not mark as another rank's, as others follow from it.
    """
    log = _lines(Path(folder, STDERR_LOG), (start or LogStart()).stderr_bytes)
    lines = [
        _OF_A_RANK.sub("", line)
        for line in log
        if (mark := _OF_A_RANK.match(line)) is None or int(mark[1]) == rank
    ]
    errors = [
        number
        for number, (before, line) in enumerate(zip(("", *lines), lines, strict=False))
        if _USAGE_ERROR.match(line) or (before.startswith(_INDENT) and _EXCEPTION.match(line))
    ]
    if not errors:
        return ()
    first = last = errors[-1 if ranks == 1 else 0]
    while first and lines[first - 1].startswith(_INDENT):
        first -= 1
    if first and lines[first - 1].startswith(_TRACEBACK):
        first -= 1
    return tuple(lines[first : last + 1][-TAIL_LINES:])


def last_said(folder: str | Path, start: LogStart | None = None) -> tuple[str, ...]:
    """The last line of a log, unless it gives no reason for a script's end.

    Warnings, progress bars and messages on the connection to another rank give none.
    """
    lines = read_log_tail(folder, start)[-1:]
    return tuple(line for line in lines if line[:1].strip() and not _NO_REASON.search(line))


def file_tail(path: Path, start: int = 0, *, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last lines of any file, from a byte on; none if it cannot be read."""
    return _lines(path, start)[-lines:]


def _lines(path: Path, start: int) -> tuple[str, ...]:
    try:
        with open(path, "rb", opener=open_file) as file:
            end = file.seek(0, os.SEEK_END)
            begin = max(start, end - _TAIL_BYTES)
            file.seek(begin)
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except (OSError, ResultsFolderError):
        return ()
    lines = text.split("\n")
    if begin > start and len(lines) > 1:
        del lines[0]  # the cut went through it
    cleaned = [clean_line(line) for line in lines]
    return tuple(line for line in cleaned if line)


def clean_line(line: str) -> str:
    """A line as a terminal would show it at its end, at most 500 characters."""
    visible = _ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2]
    return _CONTROLS.sub("", visible).rstrip()[:_LONGEST_LINE]


def read_rank_results(task: RankTask, world_size: int) -> RankResults:
    """The results of this attempt; unreadable ones count as missing."""
    return tuple(_read_result(task, rank) for rank in range(world_size))


def with_unfinished(task: RankTask, results: RankResults) -> RankResults:
    """The results with unfinished reports of a verification run that was cancelled.

    Only if its ranks were in an evaluation or a checkpoint, or had made their steps: otherwise it
    hung.
    """
    found = tuple(result or _read_unfinished(task, n) for n, result in enumerate(results))
    asides = [result.asides for result in found if result and result.asides]
    waits = any(aside.under_way for aside in asides) or all(aside.went_on for aside in asides)
    return found if task.soak and all(found) and waits else results


def is_beside_steps(task: RankTask, world_size: int) -> bool:
    """True if all ranks of a verification run evaluate, save, or have made its steps."""
    results = read_rank_results(task, world_size)
    return with_unfinished(task, results) is not results


def with_ended(task: RankTask, results: RankResults, ended: Collection[int]) -> RankResults:
    """The results with reports of ``ended`` ranks of a verification run after their steps.

    They were ended because another rank had reached its end or failed.
    """
    return tuple(
        _past_its_steps(task, rank) if result is None and rank in ended else result
        for rank, result in enumerate(results)
    )


def _past_its_steps(task: RankTask, rank: int) -> RankResult | None:
    found = _read_unfinished(task, rank)
    return found if found and found.asides and found.asides.went_on else None


def asides_seen(task: RankTask, results: RankResults) -> Asides | None:
    """Events between the steps of a verification run, also of ranks that died; else None."""
    if not task.soak:
        return None
    found = (result or _read_unfinished(task, n) for n, result in enumerate(results))
    return of_all_ranks([result.asides for result in found if result and result.asides])


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Compilation by the ranks: seconds of the slowest one, and time since the last one ended.

    ``age_s`` is 0 while one compiles.
    """

    seconds: float = 0.0
    age_s: float = math.inf


def compile_time(task: RankTask | None) -> Compiled:
    """Compilation by the ranks of this attempt so far."""
    now_s, seen = time.time(), Compiled()
    if task is None:
        return seen
    pattern = sign_path(task, compile_sign("*"))
    for path in pattern.parent.glob(pattern.name):
        with suppress(OSError, ValueError, ResultsFolderError):
            spent_s, _, since_s = read_file(path).decode().partition(" ")
            running_s = max(0.0, now_s - float(since_s)) if since_s else 0.0
            age_s = 0.0 if since_s else max(0.0, now_s - path.stat().st_mtime)
            seen = Compiled(
                seconds=max(seen.seconds, float(spent_s) + running_s),
                age_s=min(seen.age_s, age_s),
            )
    return seen


def started_ranks(task: RankTask) -> int:
    """Ranks that one process started by itself, by any rank's report; 1 if none has reported."""
    numbers = (
        path.stem.removeprefix("result_rank")
        for path in tuple(Path(task.folder).glob(f"{Path(result_file(0)).stem}*.json"))
    )
    ranks = (int(number) if number.isdecimal() else 0 for number in numbers)
    found = (_read_result(task, rank) for rank in ranks)
    return max((result.world_size for result in found if result), default=1)


def _read_unfinished(task: RankTask, rank: int) -> RankResult | None:
    return _read(sign_path(task, unfinished_sign(rank)), task, rank) if task.soak else None


def _read_result(task: RankTask, rank: int) -> RankResult | None:
    return _read(Path(task.folder, result_file(rank)), task, rank)


def _read(path: Path, task: RankTask, rank: int) -> RankResult | None:
    result = read_result(path)
    return result if result and (result.attempt, result.rank) == (task.attempt, rank) else None


def measure(task: RankTask, results: RankResults, *, strict: bool) -> Measurement | None:
    """The timed steps, if every rank reports some; ``strict`` requires the last one, too.

    Each step has the duration of the slowest rank. A trial that was ended before its timed steps
    has its last step, or else its micro-batches. In profile mode every step counts, and none is
    enough if the model was described; ``strict`` then requires every rank to have made the
    requested steps.
    """
    present = [result for result in results if result is not None]
    if len(present) < len(results):
        return None
    if task.mode is Mode.PROFILE:
        if not Path(task.folder, MODEL_INFO_FILE).exists():
            return None
        if strict and any(result.end_step is None for result in present):
            return None
        return _measurement(present, _common_steps(present, 1, task.end_step))
    cuts = [result.cut for result in present if result.cut is not None]
    if len(cuts) == len(present):
        return _extrapolate(present, cuts)
    told = min(result.end_step or task.end_step for result in present)
    start = min(task.start_step, told)
    steps = _common_steps(present, start, max(told, task.end_step))
    if not steps or (strict and steps[-1] != told):
        return None
    return replace(_measurement(present, steps), asides=asides_seen(task, results))


def _extrapolate(results: Sequence[RankResult], cuts: Sequence[CutStep]) -> Measurement:
    """A step for each micro-batch of the slowest rank, after its warm-up if possible.

    The slowest rank does not wait at the end, so the shortest rest is used.
    """
    slowest = max(cuts, key=lambda cut: sum(_steady_s(cut)))
    rest_s = min(cut.rest_s for cut in cuts)
    known = [cut.loss for cut in cuts if cut.loss is not None]
    loss = (sum(known) / len(known),) if known else ()
    return Measurement(
        step_s=tuple((slowest.whole - 1) * micro_s + rest_s for micro_s in _steady_s(slowest)),
        samples_per_step=sum(cut.samples for cut in cuts),
        world_size=len(results),
        memory=largest_memory(results),
        applied=results[0].applied,
        losses=loss,
        all_losses=loss,
        extrapolated_from=len(slowest.micro_s) + 1,
    )


def _steady_s(cut: CutStep) -> tuple[float, ...]:
    return cut.micro_s[1:] or cut.micro_s


def _common_steps(results: Sequence[RankResult], start: int, end: int) -> list[int]:
    seen = [{record.step for record in result.steps} for result in results]
    return [step for step in sorted(set.intersection(*seen)) if start <= step <= end]


def _measurement(results: Sequence[RankResult], steps: Sequence[int]) -> Measurement:
    by_step = [
        [record for result in results for record in result.steps if record.step == step]
        for step in steps
    ]
    samples = sum(record.samples for records in by_step for record in records)
    every = _losses(results, _common_steps(results, 1, max(steps, default=0)))
    flops = [result.flops_per_step for result in results if result.flops_per_step is not None]
    asides = of_all_ranks([result.asides for result in results if result.asides])
    paused = asides.before_steps if asides else ()
    return Measurement(
        step_s=_step_times_s(by_step, [step in paused for step in steps]),
        samples_per_step=round(samples / max(1, len(steps))),
        world_size=len(results),
        memory=largest_memory(results),
        applied=results[0].applied,
        flops_per_step=sum(flops) if len(flops) == len(results) else None,
        losses=every[-len(steps) :] if steps else (),
        first_step=min(steps, default=None),
        all_losses=every,
        phases=_phases(results),
    )


def _step_times_s(
    by_step: Sequence[Sequence[StepRecord]], paused: Sequence[bool]
) -> tuple[float, ...]:
    """Duration of each step on the slowest rank; after a pause, on the rank that left it last.

    The other ranks' times include waiting for it. Work between an optimizer step and a pause is in
    no step's time, so a step after a pause counts at least as much as the fastest other step.
    """
    times_s = [
        (min if after else max)(record.wall_s for record in records)
        for records, after in zip(by_step, paused, strict=True)
    ]
    whole_s = (time_s for time_s, after in zip(times_s, paused, strict=True) if not after)
    least_s = min(whole_s, default=0.0)
    return tuple(
        max(time_s, least_s) if after else time_s
        for time_s, after in zip(times_s, paused, strict=True)
    )


def _losses(results: Sequence[RankResult], steps: Sequence[int]) -> tuple[float, ...]:
    """Mean over the ranks for each step; none if a step has no loss."""
    by_step: dict[int, list[float]] = {step: [] for step in steps}
    for record in (record for result in results for record in result.steps):
        if record.step in by_step and record.loss is not None:
            by_step[record.step].append(record.loss)
    rows = by_step.values()
    return tuple(sum(row) / len(row) for row in rows) if all(rows) else ()


def _phases(results: Sequence[RankResult]) -> tuple[tuple[str, float], ...]:
    """Mean over the ranks; none unless all ranks reported phases."""
    given = [dict(result.phases) for result in results]
    names = [name for name in given[0] if all(name in rank for rank in given)]
    return tuple((name, sum(rank[name] for rank in given) / len(given)) for name in names)


def largest_memory(results: Sequence[RankResult | None]) -> MemoryUse | None:
    """Memory of the rank with the highest peak."""
    seen = [result.memory for result in results if result is not None and result.memory]
    return max(seen, key=lambda memory: memory.peak_bytes, default=None)
