"""The profile run: one launch that describes the model."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from autoconf_launch.autotuner.space import FailedTrial, Trial
from autoconf_launch.core import (
    MODEL_INFO_FILE,
    SAVED,
    STEPS_FILE,
    DecodeError,
    Failure,
    FailureKind,
    HardwareError,
    MemoryUse,
    Mode,
    ModelSpec,
    NothingFeasibleError,
    RankResult,
    RankTask,
    ResultsFolderError,
    decode,
    result_file,
    take_in,
)

from ..engines import Backend, Job, JobEnd
from ..events import Listener, ModelProfiled, Note
from ..hosts import SlotPool
from ..launch import compile_time
from ..plan import LaunchPlan
from ..report import profile_cut_text
from ..results import HEARTBEAT_S, Journal, StepsTail, read_file, read_result
from ..spelling import TrialNeeds
from .running import (
    MOST_LOSSES,
    TrialLimits,
    launch_loss,
    lost_too_often,
    out_of_time,
    timed_out_text,
)
from .time_budget import BudgetSpentError

_SLOW_S = 20.0
"""After these a profile run says where its output is: DeepSpeed's first compiles for minutes."""
_BYTES_PER_PARAMETER = 16
"""Bytes of a checkpoint: weights and both moments of Adam in fp32, and a third more to spare."""


def needs_of(task: RankTask, trial: Trial, spec: ModelSpec | None) -> TrialNeeds:
    """What this launch asks for; a second attempt at a soak is as any trial.

    Args:
        task: of the launch.
        trial: what is launched.
        spec: the model, where it is known.
    """
    steps = task.most_steps or task.end_step
    is_first = trial.is_soak and trial.attempt == 1 and task.mode is Mode.MEASURE
    return TrialNeeds(
        folder=task.folder,
        steps=steps,
        accumulation=trial.candidate.layout.accumulation,
        evaluates=is_first,
        saves=is_first and _has_room(Path(task.folder), spec),
    )


def soak_task(task: RankTask, trial: Trial, spec: ModelSpec | None) -> RankTask:
    """What ranks are asked in a soak: its steps and, in a first attempt, an epoch's end.

    What the script would save after an epoch must find room.
    """
    return replace(
        task,
        start_step=min(task.start_step, trial.soak_steps),
        end_step=trial.soak_steps,
        soak=True,
        ends_epoch=trial.attempt == 1 and _has_room(Path(task.folder), spec),
    )


def clear_saved(folder: Path) -> None:
    """Remove what the script of a trial saved: it can be gigabytes, and is of no training."""
    take_in(folder, is_ours=True)
    output = TrialNeeds(folder=str(folder), steps=0).output
    for path in (output, folder / SAVED):
        shutil.rmtree(path, ignore_errors=True)


def _has_room(folder: Path, spec: ModelSpec | None) -> bool:
    """Whether a checkpoint finds room on the disk of the results; unknown sizes do."""
    with suppress(OSError):
        wanted = _BYTES_PER_PARAMETER * (spec.parameters if spec else 0)
        return shutil.disk_usage(folder).free > wanted
    return True


class ProfileFailedError(NothingFeasibleError):
    """The profile run failed for another reason than memory."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message, failure.log_tail)
        self.failure = failure


def run_profile(
    make_plan: Callable[[], LaunchPlan],
    backend: Backend,
    *,
    pool: SlotPool,
    journal: Journal,
    limits: TrialLimits,
    listener: Listener,
) -> ModelProfiled:
    """Run a plan and read what it wrote; no model where it does not fit into memory.

    Where a host is lost it runs again, on the pool's other ones. ``listener`` hears once where to
    look while a long one goes on. ``limits`` end it: their time or the budget's deadline.

    Raises:
        BudgetSpentError: it did not end before the deadline.
        ProfileFailedError: the script fails for another reason than memory.
        NothingFeasibleError: it describes no model.
        HardwareError: no launch kept its hosts.
    """
    losses = list[tuple[str, ...]]()
    while True:
        plan = pool.first_share.place(make_plan(), alone=True)
        folder = Path(plan.folder or ".")
        job = backend.submit(plan)
        end = wait_for_end(backend, job, limits, journal, partial(listener, _slow_note(folder)))
        clear_saved(folder)
        if isinstance(end.outcome, FailedTrial) and limits.budget.left_s <= 0.0:
            raise BudgetSpentError(_cut_text(folder, limits))
        if (loss := launch_loss(end)) is None:
            break
        losses.append(end.lost_hosts)
        pool.blame(end.lost_hosts)
        if len(losses) == MOST_LOSSES or not pool.can_hold(pool.usual):
            why = lost_too_often(losses, loss).detail
            raise HardwareError(f"The profile run failed: {why}; repair or exclude the hosts.")
        listener(Note(text=f"The profile run is launched again: {loss.detail}.", warning=True))
    spec = read_model_info(folder / MODEL_INFO_FILE)
    _require_end(end, folder, described=spec is not None)
    journal.write_profiled(end.wall_s)
    return ModelProfiled(spec=spec, wall_s=end.wall_s)


def _cut_text(folder: Path, limits: TrialLimits) -> str:
    steps = StepsTail(folder / STEPS_FILE).new()
    is_first = bool(steps) and all(step.step == 1 for step in steps)
    return profile_cut_text(
        limits.budget.whole_s,
        folder,
        first_step_s=max(step.wall_s for step in steps) if is_first else None,
        timeout_s=limits.timeout_s,
    )


def _slow_note(folder: Path) -> Note:
    text = f"The profile run has taken {_SLOW_S:g} s so far; its output is in {folder}."
    return Note(text=text)


def read_model_info(path: Path) -> ModelSpec | None:
    """The model's description; None where there is none that can be read."""
    try:
        return decode(ModelSpec, json.loads(read_file(path)))
    except (OSError, ValueError, RecursionError, DecodeError, ResultsFolderError):
        return None


def refused_weights(folder: Path) -> MemoryUse | None:
    """Memory of a rank whose weights alone were too large in the profile run."""
    refused = (result.memory for result in _failed_ranks(folder))
    return next((memory for memory in refused if memory and memory.weights_alone), None)


def refused_baseline(folder: Path) -> FailedTrial | None:
    """The outcome of a profile run that ran out of memory with the baseline itself."""
    for result in _failed_ranks(folder):
        if result.failure and result.failure.kind is FailureKind.OUT_OF_MEMORY:
            return FailedTrial(failure=result.failure, memory=result.memory)
    return None


def is_on_gpu(folder: Path) -> bool:
    """Whether rank 0 of the profile run measured a GPU's memory; True if it measured none."""
    result = read_result(folder / result_file(0))
    memory = result.memory if result else None
    return memory is None or memory.reserved_bytes is not None


def _failed_ranks(folder: Path) -> Iterator[RankResult]:
    results = map(read_result, sorted(folder.glob("result*.json")))
    return (result for result in results if result and result.failure)


def wait_for_end(
    backend: Backend,
    job: Job,
    limits: TrialLimits,
    journal: Journal,
    say_slow: Callable[[], None] = lambda: None,
) -> JobEnd:
    """Return when a job has ended, at the latest when its time or the budget is over."""
    began_s, slow_s, is_cancelled = time.monotonic(), _SLOW_S, False
    reason = Failure(kind=FailureKind.PREEMPTED, detail="the launcher was interrupted")
    try:
        while True:
            if job.is_queued:  # its time begins when it has hosts
                began_s = time.monotonic()
            left_s = began_s + limits.timeout_s - time.monotonic()
            compiled_s = compile_time(job.plan.task).seconds if left_s <= 0 else 0.0
            left_s = min(left_s + min(compiled_s, limits.timeout_s), limits.budget.left_s)
            left_s = math.inf if is_cancelled else left_s
            backend.wait([job], min(max(left_s, 0.0), HEARTBEAT_S))
            journal.heartbeat()
            end = backend.poll([job])[0]
            if end is not None:
                return end
            if time.monotonic() >= began_s + slow_s:
                say_slow()
                slow_s = float("inf")
            if left_s <= 0:
                backend.cancel(job, _overdue(limits, compiled_s))
                is_cancelled = True
    except BaseException:
        backend.cancel(job, reason)
        while backend.poll([job])[0] is None:
            backend.wait([job], HEARTBEAT_S)
        raise


def _overdue(limits: TrialLimits, compiled_s: float) -> Failure:
    """Which limit the profile run has reached."""
    if limits.budget.left_s <= 0.0:
        return out_of_time()
    detail = timed_out_text(limits.timeout_s, limits.timeout_by, compiled_s)
    return Failure(kind=FailureKind.TIMED_OUT, detail=detail)


_BROKE_OFF = (FailureKind.CRASHED, FailureKind.BAD_CONFIG)
"""Failures of a script that had described its model before."""


def _require_end(end: JobEnd, folder: Path, *, described: bool) -> None:
    """Raise unless the run described the model and ended well, or ran out of memory."""
    failure = end.outcome.failure if isinstance(end.outcome, FailedTrial) else None
    if failure is None and not described:
        raise NothingFeasibleError(
            f"The script ended without describing its model; it must call "
            f"autoconf_launch.runtime.initialize and step. Its output is in {folder}."
        )
    if failure is None or failure.kind is FailureKind.OUT_OF_MEMORY:
        return
    if described and failure.kind not in _BROKE_OFF:
        return
    how = f"failed in its profile run ({failure.kind.value}: {failure.detail})"
    if failure.kind is FailureKind.NO_STEPS:
        how = f"ended without a measured step: {failure.detail}"
    text = f"The script {how.rstrip('.')}. Its output is in {folder}."
    raise ProfileFailedError(text, failure)
