"""Trainings that are all alive and take their steps in turns, granted through pipes.

A waiting training costs no time: its ranks block in a read. When this process ends, however it
does, the pipes close and the ranks stop.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

from .blocks import samples_per_s
from .children import Running
from .choice import RANKS, Choice
from .tools import START_DEADLINE_S, Tool

TURN_DEADLINE_S = 120.0
WARM_UP_STEPS = 3
"""Steps of the first turn, which does not count."""
COLD_STEPS = 1
"""Steps at the start of each later turn that do not count: others have used the caches."""


class Training:
    """A choice that trains on a tool's runtime."""

    def __init__(self, running: Running, pipes: tuple[tuple[int, int], ...], choice: Choice):
        self._running, self._choice = running, choice
        self._pipes, self._buffers = pipes, {done: b"" for _, done in pipes}
        self._take(WARM_UP_STEPS, START_DEADLINE_S)

    def speed(self, steps: int) -> float:
        """Samples/s over that many steps.

        Raises:
            ChildError: it ended, or was late.
        """
        step_s = self._take(COLD_STEPS + steps, TURN_DEADLINE_S)
        batch = self._choice.global_batch
        return samples_per_s(step_s, samples_per_step=batch, warmup=COLD_STEPS)

    def _take(self, steps: int, deadline_s: float) -> list[list[float]]:
        for go, _ in self._pipes:
            os.write(go, f"{steps}\n".encode())
        limit_s = time.monotonic() + deadline_s
        return [json.loads(self._line(done, limit_s)) for _, done in self._pipes]

    def _line(self, done: int, limit_s: float) -> bytes:
        while b"\n" not in self._buffers[done]:
            if time.monotonic() > limit_s:
                raise self._running.error("was late with its turn")
            if self._running.has_ended():
                raise self._running.error("ended in its turn")
            if select.select([done], [], [], 0.5)[0]:
                self._buffers[done] += os.read(done, 1 << 16)
        line, _, self._buffers[done] = self._buffers[done].partition(b"\n")
        return line


@contextlib.contextmanager
def training(tool: Tool, choice: Choice, folder: Path) -> Iterator[Training]:
    """Start one, warm it up, and end it with the context."""
    child = tool.training(choice, folder)
    with contextlib.ExitStack() as stack:
        pipes = tuple(
            (_pipe(folder / f"rank{rank}.go", stack), _pipe(folder / f"rank{rank}.done", stack))
            for rank in range(RANKS)
        )
        yield Training(stack.enter_context(Running(child)), pipes, choice)


def _pipe(path: Path, stack: contextlib.ExitStack) -> int:
    """A new named pipe, open at both ends, so that opening it waits for nobody."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    return descriptor
