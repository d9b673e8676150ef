"""Turn groups: launches that live side by side and compute one at a time."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autoconf_launch.core import RankTask, turn_file

_TOKEN = struct.Struct("=q")
_COMPUTES = 0
"""A rank that passes the turn continues later. Any other number is from a rank that is done, and
says that no rank has computed since."""
_OVER = -1
"""All are done."""


class Turns:
    """A rank's place in a turn group, in which it has a peer in each other launch.

    The turn is a number in a pipe to the next launch; the last one's leads to the first. Both
    ends are held open, so that none waits for a reader and none is lost. A rank that is done
    stays and passes the turn, so that shorter launches delay no other. Processes that load
    data for the rank stop in others' turns: a launch that has the machine to itself would not
    have the batches that they made meanwhile.
    """

    def __init__(
        self, task: RankTask, rank: int, *, settle: Callable[[], None], restart: Callable[[], None]
    ) -> None:
        """Without a group in the ``task`` every step is this rank's.

        Args:
            task: of the launch.
            rank: number of this rank.
            settle: waits for the device and records the steps so far.
            restart: lets the next step's time begin.
        """
        self._task, self._settle, self._restart = task, settle, restart
        self._has_entered = self._has_turn = False
        if task.next_folder is not None:
            self._own = _pipe(Path(task.folder) / turn_file(rank))
            self._next = _pipe(Path(task.next_folder) / turn_file(rank))

    def after_step(self, number: int) -> None:
        """Let the others compute, if this step ends a turn; the first call enters the group.

        The turn goes round once before it counts, so that all launches are there. The first
        launch of the group has it from the start.
        """
        turns_before = self._task.turns_before
        is_inside = self._has_entered and turns_before(number) == turns_before(number - 1)
        if self._task.next_folder is None or is_inside:
            return
        self._settle()
        if not self._has_entered and not self._task.first_turn:
            self.wait()
        self._has_entered = True
        self.pass_turn()
        self.wait()
        self._restart()

    def wait(self) -> None:
        _send_loaders(signal.SIGSTOP)
        try:
            self._read()
        finally:
            _send_loaders(signal.SIGCONT)
        self._has_turn = True

    def pass_turn(self) -> None:
        _send_loaders(signal.SIGSTOP)
        self._has_turn = False
        self._write(_COMPUTES)

    def end(self) -> None:
        """Pass the turn for the last time; return once all have: leaving slows others.

        At once if this rank waited for its turn when its end came (a signal, another thread).
        """
        if not self._has_turn:
            return
        _send_loaders(signal.SIGSTOP)
        try:
            self._pass_until_over()
        finally:
            _send_loaders(signal.SIGCONT)

    def _pass_until_over(self) -> None:
        own = token = 1 + secrets.randbits(62)
        while True:
            self._write(token)
            token = self._read()
            if token in (own, _OVER):
                self._write(_OVER)
                return
            token = token or own

    def _read(self) -> int:
        (token,) = _TOKEN.unpack(os.read(self._own, _TOKEN.size))
        return int(token)

    def _write(self, token: int) -> None:
        os.write(self._next, _TOKEN.pack(token))


def _pipe(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _send_loaders(number: signal.Signals) -> None:
    """Signal the children that end with this process, such as workers of loaders."""
    for child in multiprocessing.active_children():
        if child.daemon and child.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(child.pid, number)
