"""Times generations of one batch, reports, and ends the rank.

A step of the task is one generation; times of it and its phases are of the slowest rank.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from autoconf_launch.core import (
    DECODE,
    INPUT_LEN,
    OUTPUT_LEN,
    PREFILL,
    STEPS_FILE,
    AppliedStrategy,
    ConfigError,
    GenerationTask,
    Mode,
    RawConfig,
    Recompute,
    StepRecord,
    encode,
)

from ..rank import (
    Ranks,
    Report,
    announced_end,
    join,
    leave,
    rank_number,
    start_meter,
    task_from_environment,
    world_size,
    write_whole,
)
from .generator import Generator, PreparedModel, WrittenText, prepare_generator


class PhaseSums:
    """Seconds of both phases over the generations that count."""

    def __init__(self) -> None:
        self._sums = {PREFILL: 0.0, DECODE: 0.0}
        self._count = 0

    def add(self, prefill_s: float, decode_s: float) -> None:
        """Add the times of one generation."""
        self._sums[PREFILL] += prefill_s
        self._sums[DECODE] += decode_s
        self._count += 1

    def means(self) -> tuple[tuple[str, float], ...]:
        """Mean seconds of each phase; nothing if no generation counted."""
        return tuple((n, total / self._count) for n, total in self._sums.items() if self._count)


def measure_generation(
    base: RawConfig, asked: GenerationTask, out: Path | Callable[[str], None] = lambda _: None
) -> None:
    """Make the generations that the launcher asks for; without one, its own choice.

    Args:
        base: configuration of the model.
        asked: the point.
        out: without a launcher, the file that figures are written to, or the receiver of tokens
            of one generation.

    Raises:
        ConfigError: the model has no such layout, or the ranks are not as many as it needs.
    """
    task = task_from_environment()
    if task is None:
        prepared = prepare_generator(base, asked, _join(asked))
        if isinstance(out, Path):
            _write_figures(prepared, out)
            return
        written = prepared.load().write()
        if prepared.ranks.rank == 0:
            out(json.dumps({"tokens": written.tokens.tolist()}))
        return
    report = Report(task, rank=rank_number(), world_size=world_size())
    with report.guard():
        ranks = _join(asked)
        prepared = prepare_generator(base, asked, ranks)
        report.install()
        report.meter = start_meter(ranks.device, task.memory_limit_bytes, 0)
        report.meter.enforce()
        with report.meter.watch_live():
            generator = prepared.load()
            report.meter.restart()  # whole weights, before they are cut, are not a generation's
            generator.write()
        _Measured(prepared, generator, report).run()


_WARM_UP, _TIMED = 1, 10


def _write_figures(prepared: PreparedModel, path: Path) -> None:
    """Time some generations and write them down on rank 0, the slowest rank's."""
    meter = start_meter(prepared.ranks.device, None, 0)
    with meter.watch_live():
        generator, times = prepared.load(), PhaseSums()
        meter.restart()
        generator.write()
    latencies = []
    for number in range(_WARM_UP + _TIMED):
        dist.barrier()
        written = generator.write()
        prefill_s, decode_s = _slowest(prepared.ranks, written.prefill_s, written.decode_s)
        if number >= _WARM_UP:
            latencies.append(prefill_s + decode_s)
            times.add(prefill_s, decode_s)
    (peak,) = _slowest(prepared.ranks, float(meter.use().peak_bytes))
    if prepared.ranks.rank == 0:
        figures = {"latencies": latencies, **dict(times.means()), "peak_bytes": int(peak)}
        write_whole(path, json.dumps(figures, indent=2) + "\n")


def _slowest(ranks: Ranks, *values: float) -> list[float]:
    """The largest of each over all ranks."""
    agreed = torch.tensor(values, dtype=torch.float64, device=ranks.device)
    dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
    found: list[float] = agreed.tolist()
    return found


def _join(asked: GenerationTask) -> Ranks:
    if world_size() != asked.layout.world_size:
        raise ConfigError(
            f"The generation is for {asked.layout.world_size} ranks, but there are "
            f"{world_size()}; start it with as many."
        )
    return join()


class _Measured:
    """Generations of one rank among the others."""

    def __init__(self, prepared: PreparedModel, generator: Generator, report: Report) -> None:
        assert report.task.mode is Mode.MEASURE
        self._generator, self._report = generator, report
        self._prepared, self._ranks = prepared, prepared.ranks
        self._times = PhaseSums()
        report.phases = self._times.means
        path = Path(report.task.folder) / STEPS_FILE
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def run(self) -> None:
        """Generate until the step to end at; the process ends then."""
        task, is_last = self._report.task, False
        while not is_last:
            dist.barrier()
            written = self._generator.write()
            number = len(self._report.steps) + 1
            is_last = self._record(number, written)
            self._report.applied = _what_ran(self._prepared, written)
        self._report.write(end_step=min(len(self._report.steps), task.most_steps or task.end_step))
        dist.barrier()
        leave(0)

    def _record(self, number: int, written: WrittenText) -> bool:
        """Note a generation; whether it is the last one, which all ranks find alike."""
        task = self._report.task
        is_asked = task.most_steps is not None and number >= announced_end(task)
        prefill_s, decode_s, ends = _slowest(
            self._ranks, written.prefill_s, written.decode_s, float(is_asked)
        )
        if number >= task.start_step:
            self._times.add(prefill_s, decode_s)
        samples = len(written.tokens) if self._ranks.rank == 0 else 0
        record = StepRecord(
            rank=self._ranks.rank, step=number, wall_s=prefill_s + decode_s, samples=samples
        )
        os.write(self._file, f"{json.dumps(encode(record))}\n".encode())
        self._report.steps.append(record)
        return bool(ends) or number >= (task.most_steps or task.end_step)


def _what_ran(prepared: PreparedModel, written: WrittenText) -> AppliedStrategy:
    """The strategy that ran, from the live parts and the tokens."""
    batch, output_len = written.tokens.shape
    stage = prepared.stage
    extras = ((INPUT_LEN, prepared.asked.input_len), (OUTPUT_LEN, int(output_len)))
    return AppliedStrategy(
        zero_stage=0,
        data_parallel=1,
        micro_batch=int(batch),
        accumulation=1,
        precision=prepared.asked.precision,
        recompute=Recompute.NONE,
        tensor_parallel=prepared.tensor_ranks,
        pipeline_parallel=stage.count if stage is not None else 1,
        extras=extras,
        description=f"{type(prepared.model).__name__} of random weights",
    )
