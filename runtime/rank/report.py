"""A rank's last word: one result file, written whole, whichever way the rank ends."""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Protocol

from autoconf_launch.core import (
    END_FILE,
    TASK_VARIABLE,
    AppliedStrategy,
    Asides,
    CutStep,
    Failure,
    FailureKind,
    MemoryUse,
    Mode,
    RankResult,
    RankTask,
    SecretFilter,
    StepRecord,
    encode,
    plural,
    real_time,
    result_file,
    sign_path,
)

from .failures import asked_bytes, classify, last_words
from .memory import CudaMeter, Meter
from .turns import Turns


def task_from_environment(environment: Mapping[str, str] = os.environ) -> RankTask | None:
    """The launcher's task for this rank; None: just train."""
    value = environment.get(TASK_VARIABLE)
    return RankTask.from_variable(value) if value else None


class SideActivity(Protocol):
    """Work of the rank besides its steps."""

    def judge(self, failure: Failure, steps: int) -> Failure | None:
        """The failure with its place; None if it belongs to neither steps nor asides."""

    def summary(self) -> Asides:
        """Evaluations and checkpoints so far."""

    def on_end(self) -> None:
        """Note that the script ended by itself."""


class Report:
    """The result of this rank so far; only its first ending is written."""

    def __init__(self, task: RankTask, *, rank: int, world_size: int) -> None:
        self.task = task
        self.steps: list[StepRecord] = []
        self.applied: AppliedStrategy | None = None
        self.meter: Meter | None = None
        self.phases: Callable[[], tuple[tuple[str, float], ...]] = tuple
        """Mean seconds of a step by phase."""
        self.cut: CutStep | None = None
        self.beside: SideActivity | None = None
        self.put_away: Callable[[], tuple[str, ...]] = tuple
        """Clears away what the script saved; what else it has made in the working directory."""
        self.turns: Turns | None = None
        self.settle: Callable[[], object] = tuple
        """Waits until ``steps`` has all that were made."""
        self._rank = rank
        self._world_size = world_size
        self._written = False
        self._process = os.getpid()
        self._left: tuple[str, ...] = ()

    def install(self) -> None:
        """Report errors of the script outside of our calls, and a script that just ends.

        To be called after the process group is there: torch's own hook, which comes with it,
        prints nothing of a process that ends inside.
        """
        previous = sys.excepthook

        def hook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            if issubclass(kind, Exception):
                self.fail(error)
            previous(kind, error, trace)
            if issubclass(kind, Exception):
                leave(1)

        sys.excepthook = hook
        atexit.register(self._script_ended)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Report an error that is raised inside, then let it pass."""
        try:
            yield
        except Exception as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Write the failure that an exception means; in a forked helper nothing."""
        if os.getpid() != self._process:
            return
        with suppress(Exception):  # a device that failed shows no more steps
            self.settle()
        if self.meter is not None:
            self.meter.lift()
        is_limited = self.task.memory_limit_bytes is not None
        is_limited = is_limited and not isinstance(self.meter, CudaMeter)
        failure: Failure | None = classify(error, is_limited=is_limited)
        if failure and self.beside is not None:
            failure = self.beside.judge(failure, len(self.steps))
        if failure and failure.kind is FailureKind.CRASHED:
            words = last_words(Path(self.task.folder), error)
            failure = replace(failure, log_tail=words)
        self.write(failure, asked=asked_bytes(error) if failure else 0)

    def write(
        self, failure: Failure | None = None, *, asked: int = 0, end_step: int | None = None
    ) -> None:
        """Write the result, unless one was written.

        Args:
            failure: why there are no more steps.
            asked: bytes that were refused at the end.
            end_step: the requested last step, if this is it.
        """
        if self._written:
            return
        self._written = True
        self._left = self.put_away()
        result = encode(self.result(failure, asked=asked, end_step=end_step))
        write_whole(Path(self.task.folder, result_file(self._rank)), shown_json(result))

    def result(
        self, failure: Failure | None = None, *, asked: int = 0, end_step: int | None = None
    ) -> RankResult:
        """The present result; arguments as in :meth:`write`."""
        return RankResult(
            rank=self._rank,
            world_size=self._world_size,
            attempt=self.task.attempt,
            ended_unix_s=real_time.time(),
            steps=tuple(self.steps),
            failure=failure,
            applied=self.applied,
            memory=self._memory(asked),
            end_step=end_step,
            left_behind=self._left,
            phases=self.phases(),
            cut=self.cut,
            asides=self.beside.summary() if self.beside is not None and self.steps else None,
        )

    def _memory(self, asked: int) -> MemoryUse | None:
        if self.meter is None:
            return None
        with suppress(RuntimeError):  # a lost device says nothing more
            use = self.meter.use()
            return replace(use, peak_bytes=use.peak_bytes + asked)
        return None

    def _script_ended(self) -> None:
        if os.getpid() != self._process:
            return
        self.settle()
        needed = self.task.start_step if self.task.mode is Mode.MEASURE else 1
        if self.task.mode is Mode.MEASURE and len(self.steps) >= needed:
            if self.beside is not None:
                self.beside.on_end()
            self.write()
            if self.turns is not None:
                self.turns.end()
            return
        self.write(
            Failure(
                kind=FailureKind.NO_STEPS,
                detail=f"The script ended after {plural(len(self.steps), 'optimizer step')}, but "
                f"at least {needed} are needed; give it more data or more steps.",
            )
        )


def write_whole(path: Path, text: str) -> None:
    """Write a file that readers see complete or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def shown_json(value: object, indent: int | None = None) -> str:
    """The text of a JSON value for a file of the launch, without the environment's secrets."""
    return json.dumps(SecretFilter.from_environment().document(value), indent=indent)


def write_sign(task: RankTask, name: str, text: str) -> None:
    """Leave word for the launcher or the other ranks of this launch."""
    path = sign_path(task, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)


def announced_end(task: RankTask) -> int:
    """The step to end at, as the launcher last said; microseconds if it said nothing."""
    path = f"{task.folder}/{END_FILE}"
    if not os.access(path, os.R_OK):
        return task.end_step
    words = Path(path).read_text(encoding="utf-8").split()
    is_ours = len(words) == 2 and words[0] == task.attempt and words[1].isdecimal()
    return int(words[1]) if is_ours else task.end_step


def leave(code: int) -> NoReturn:
    """End this process now, its helpers too: no exit handlers, nothing that can hang."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # somebody's own stream
            stream.flush()
    for child in multiprocessing.active_children():
        if getattr(child, "_parent_pid", None) == os.getpid():  # else a brother of this helper
            child.terminate()
    os._exit(code)
