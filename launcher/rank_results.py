"""Reads what the ranks of a launch reported and times it. Not: why a launch failed (outcome)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from autoconf_launch.autotuner.trial import Measurement
from autoconf_launch.core import (
    MemoryUse,
    Mode,
    RankResult,
    RankTask,
    decode,
)
from autoconf_launch.core.rank import MODEL_INFO_FILE, result_file

RankResults: TypeAlias = tuple[RankResult | None, ...]
"""Of each rank, in order; None where it reported nothing (in this attempt)."""


def read_rank_results(task: RankTask, world_size: int) -> RankResults:
    """The results of this attempt; what cannot be read counts as not there."""
    return tuple(_read_result(task, rank) for rank in range(world_size))


def started_ranks(task: RankTask) -> int:
    """Ranks that one process made by itself, as any of them says; 1 where none has reported."""
    numbers = (path.stem.removeprefix("result_rank") for path in _result_files(task))
    ranks = (int(number) if number.isdecimal() else 0 for number in numbers)
    found = (_read_result(task, rank) for rank in ranks)
    return max((result.world_size for result in found if result), default=1)


def _result_files(task: RankTask) -> tuple[Path, ...]:
    return tuple(Path(task.folder).glob(f"{Path(result_file(0)).stem}*.json"))


def _read_result(task: RankTask, rank: int) -> RankResult | None:
    try:
        content = Path(task.folder, result_file(rank)).read_bytes()
        result = decode(RankResult, json.loads(content))
    except (OSError, ValueError):
        return None
    return result if (result.attempt, result.rank) == (task.attempt, rank) else None


def measure(task: RankTask, results: RankResults, *, strict: bool) -> Measurement | None:
    """The timed steps, if every rank reports some; ``strict`` wants the last one too.

    Of each step the slowest rank counts. Of a trial that was ended before its steps count, the
    last one does. In profile mode every step is taken, and none at all is enough where the model
    was described.
    """
    present = [result for result in results if result is not None]
    if len(present) < len(results):
        return None
    if task.mode is Mode.PROFILE:
        if not Path(task.folder, MODEL_INFO_FILE).exists():
            return None
        return _measurement(present, _common_steps(present, 1, task.end_step))
    told = min(result.end_step or task.end_step for result in present)
    start = min(task.start_step, told)
    steps = _common_steps(present, start, max(told, task.end_step))
    if not steps or (strict and steps[-1] != told):
        return None
    return _measurement(present, steps)


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
    return Measurement(
        step_s=tuple(max(record.wall_s for record in records) for records in by_step),
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


def _losses(results: Sequence[RankResult], steps: Sequence[int]) -> tuple[float, ...]:
    """Mean over the ranks of each step; none where a step has none."""
    by_step: dict[int, list[float]] = {step: [] for step in steps}
    for record in (record for result in results for record in result.steps):
        if record.step in by_step and record.loss is not None:
            by_step[record.step].append(record.loss)
    rows = by_step.values()
    return tuple(sum(row) / len(row) for row in rows) if all(rows) else ()


def _phases(results: Sequence[RankResult]) -> tuple[tuple[str, float], ...]:
    """Mean over the ranks; nothing unless all took their steps apart."""
    given = [dict(result.phases) for result in results]
    names = [name for name in given[0] if all(name in rank for rank in given)]
    return tuple((name, sum(rank[name] for rank in given) / len(given)) for name in names)


def largest_memory(results: Sequence[RankResult | None]) -> MemoryUse | None:
    """Of the rank with the highest peak."""
    seen = [result.memory for result in results if result is not None and result.memory]
    return max(seen, key=lambda memory: memory.peak_bytes, default=None)
