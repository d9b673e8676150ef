"""The line to agents through files of a folder that all hosts see, for engines without a pipe.

For each host ``K.down`` has JSON lines for the agent and ``K.up`` lines from it, as through a
pipe; ``K.out`` and ``K.err`` have the output of its ranks.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoconf_launch.core import Failure, FailureKind, visible

from .line import BEAT_S, CONNECT_S, SILENCE_S, AgentLine, split_lines

_LOOK_EVERY_S = 0.25
AGENT_COMPLAINT = "autoconf-launch: "
"""Start of the last words of an agent that cannot begin."""
_MOST_READ_BYTES = 4 << 20
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
_RULE = "-" * 40


class Starter(ABC):
    """The process or job that starts the agents of all hosts of a launch."""

    pid = 0
    """Number of the process here, or of the job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: tuple[FolderLine, ...] = ()
        self._open_lines = 0

    def lines(self, hosts: Sequence[str]) -> tuple[FolderLine, ...]:
        """The lines to the agents; closing the last one ends the launch."""
        self._lines = tuple(FolderLine(h, self._folder, k, self) for k, h in enumerate(hosts))
        self._open_lines = len(hosts)
        return self._lines

    def close(self) -> None:
        """Close a line; after the last one, end all agents that are left."""
        self._open_lines -= 1
        if self._open_lines <= 0:
            self.end()

    @abstractmethod
    def is_queued(self, node: int) -> bool:
        """True while an agent waits for its host."""

    @abstractmethod
    def why_queued(self, node: int) -> str:
        """Why an agent waits for its host, if it does."""

    @abstractmethod
    def why_over(self, node: int) -> Failure | None:
        """Why an agent will not answer any more; None while it lives, or waits for its host."""

    @abstractmethod
    def patience_s(self, node: int) -> float:
        """Longest silence of a host that has not answered yet, in seconds."""

    @abstractmethod
    def end(self) -> None:
        """End the agents that live, and remove the folder."""


class FolderLine(AgentLine):
    """The line to one host."""

    look_every_s = _LOOK_EVERY_S
    is_shared = True

    def __init__(self, host: str, folder: Path, node: int, starter: Starter) -> None:
        super().__init__(host)
        self._node, self._starter = node, starter
        self._down = folder / f"{node}.down"
        self._up = _Tail(folder / f"{node}.up")
        self._printed = {
            n: _Tail(folder / f"{node}.{name}") for n, name in ((1, "out"), (2, "err"))
        }
        self._last: list[dict[str, Any]] = []
        self._has_answered = False
        self._over_s: float | None = None

    def send(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        with (
            contextlib.suppress(OSError),
            os.fdopen(os.open(self._down, _FLAGS, 0o600), "ab") as file,
        ):
            file.write(data)

    def read(self) -> list[dict[str, Any]]:
        """Lines that have come; a report only after all that was printed before it."""
        if data := self._up.read():
            self._heard_s, self._has_answered = time.monotonic(), True
        lines, self._received = split_lines(self._received + data)
        self._last += [line for line in lines if "report" in line]
        printed = [
            {"stream": number, "data": base64.b64encode(text).decode()}
            for number, tail in self._printed.items()
            if (text := tail.read())
        ]
        last, self._last = (self._last, []) if self._is_whole() else ([], self._last)
        return [
            *(line for line in lines if "alive" not in line and "report" not in line),
            *printed,
            *last,
        ]

    def _is_whole(self) -> bool:
        """Return whether all output from before the report has come, or is late."""
        sizes = self._last[0].get("printed_bytes") if self._last else ()
        if not isinstance(sizes, list):
            return True
        have = (tail.position for tail in self._printed.values())
        is_late = time.monotonic() > self._heard_s + SILENCE_S
        pairs = zip(have, sizes, strict=False)
        return is_late or all(not isinstance(size, int) or own >= size for own, size in pairs)

    @property
    def is_queued(self) -> bool:
        return self._starter.is_queued(self._node)

    def why_queued(self) -> str:
        return self._starter.why_queued(self._node)

    @property
    def due_s(self) -> float:
        if self._has_answered:
            return self._heard_s + SILENCE_S
        return self._heard_s + self._starter.patience_s(self._node)

    @property
    def loss(self) -> Failure | None:
        """See :class:`AgentLine`; files may come late, so an end counts only after a while."""
        over = self._starter.why_over(self._node)
        now = time.monotonic()
        if over is None:
            silent = f"has not answered for {now - self._heard_s:.0f} s"
            late = Failure(kind=FailureKind.NODE_LOST, detail=silent)
            return late if now > self.due_s else None
        self._over_s = self._over_s or now
        patience_s = SILENCE_S if self._has_answered else BEAT_S
        return over if now > self._over_s + patience_s else None

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.send({"end": True})
            self._starter.close()


class Heartbeat:
    """A file of the folder that changes for as long as the launcher lives."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "beat"
        self._stops = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def stop(self) -> None:
        """Let the folder be removed."""
        self._stops.set()

    def _beat(self) -> None:
        for number in itertools.count():
            with contextlib.suppress(OSError):
                self._file.write_text(f"{number}\n")
            if self._stops.wait(BEAT_S):
                return


class StartingProcess(Starter):
    """A process here that starts an agent on every host, such as ``mpirun``."""

    def __init__(self, words: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._name, self._log = Path(words[0]).name, folder / "engine.log"
        with os.fdopen(os.open(self._log, _FLAGS, 0o600), "ab") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **variables},
                start_new_session=True,  # signals are passed on by us, not by the terminal
            )
        self.pid = self._process.pid
        self._heart = Heartbeat(folder)

    def is_queued(self, node: int) -> bool:
        return False

    def why_queued(self, node: int) -> str:
        return ""

    def why_over(self, node: int) -> Failure | None:
        """The last words of the engine, or of an agent that could not begin."""
        said = ""
        with contextlib.suppress(OSError):
            said = self._log.read_text(errors="replace")
        if complaint := complaint_in(said):
            return complaint
        if self._process.poll() is None:
            return None
        words = f" ({why})" if (why := engine_reason(said)) else ""
        detail = f"is not connected: {self._name} has ended{words}"  # maybe for another host
        return Failure(kind=FailureKind.NODE_LOST, detail=detail)

    def patience_s(self, node: int) -> float:
        return CONNECT_S + SILENCE_S

    def end(self) -> None:
        """Let the engine end, else end it."""
        self._heart.stop()
        for end in (None, self._process.terminate, self._process.kill):
            if end is not None:
                end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
        shutil.rmtree(self._folder, ignore_errors=True)


def complaint_in(text: str) -> Failure | None:
    """The complaint of an agent that could not begin, in what it or its engine printed."""
    marked = [line for line in text.splitlines() if AGENT_COMPLAINT in line]
    if not marked:
        return None
    detail = f"Host {visible(marked[0].partition(AGENT_COMPLAINT)[2])}"
    return Failure(kind=FailureKind.BAD_CONFIG, detail=detail)


def engine_reason(text: str) -> str:
    """The line of an engine's output that names the error.

    Open MPI frames pages of advice by rules: the output of ssh before them counts, else their
    first line.
    """
    before, rule, framed = text.partition(_RULE)
    if not rule or before.strip():
        return last_line(before)
    first = next((line for line in framed.splitlines() if line.strip(" -")), "")
    return visible(first.strip().rstrip("."))


def last_line(text: str) -> str:
    """The last line that is more than a rule, fit for a message."""
    lines = reversed(text.splitlines())
    return visible(next((line.strip() for line in lines if line.strip(" -")), ""))


def make_line_folder(parent: str) -> Path:
    """A folder for the files of one launch, which no other one has had."""
    return Path(tempfile.mkdtemp(prefix=".agents-", dir=Path(parent).absolute()))


class _Tail:
    """New text at the end of a file that another host writes."""

    def __init__(self, path: Path) -> None:
        self._path, self.position = path, 0

    def read(self) -> bytes:
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(self.position)
            data = file.read(_MOST_READ_BYTES)
            self.position += len(data)
            return data
        return b""
