"""The line to an agent on another host: JSON lines through the streams of one process.

The agent's first line describes its host, see :class:`Introduction`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import queue
import select
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from autoconf_launch.core import (
    DecodeError,
    Failure,
    FailureKind,
    HardwareError,
    decode,
    visible,
)

from ..machine import Gpu, seen_at_once
from .base import HostDescription

CONNECT_S = 20
"""Seconds that a host may take to answer."""
BEAT_S = 2.0
SILENCE_S = 10.0
"""Seconds without a line after which either end counts the other as lost."""
_DOUBT_S = 5.0
"""Seconds before that at which a second connection shows whether the host can be reached."""
_LOOK_S = 0.1
_AGENT = Path(__file__).parents[1] / "launch" / "host_agent.py"
SAME_ON_ALL = ("autoconf-launch", "torch")
"""Packages whose versions must be the same on all hosts."""
_MOST_ERRORS = 4096
_MOST_READ_BYTES = 4 << 20
MOST_LINE_BYTES = 16 << 20
"""Limit of a line from a host; a file of a rank takes 6 MiB at most."""
_CLOSED = "closed the connection"


def agent_command(silence_s: float = SILENCE_S) -> tuple[str, ...]:
    """Argv of an agent whose line is a pipe."""
    about = (str(BEAT_S), str(silence_s), ",".join(SAME_ON_ALL))
    return (sys.executable, "-I", str(_AGENT), *about)


class AgentLine(ABC):
    """A line to the agent of one host."""

    look_every_s = math.inf
    """Pause between looks at it, if it has no descriptor to poll."""
    is_shared = False
    """Its files are in a folder that its agent shares with us."""
    awaits_all = False
    """Its agent gets its order only once all have answered, as they begin one by one."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._received = b""
        self._heard_s = time.monotonic()
        self.is_closed = False

    @property
    def is_queued(self) -> bool:
        """True while it waits for a host in a queue."""
        return False

    @property
    def is_unreachable(self) -> bool:
        """True if a second connection, tried during a silence, failed as well."""
        return False

    @property
    def silent_s(self) -> float:
        """Seconds since the last line."""
        return time.monotonic() - self._heard_s

    def why_queued(self) -> str:
        """The reason why it waits, as a phrase; empty if unknown."""
        return ""

    def fileno(self) -> int:
        """The descriptor to poll; -1: none."""
        return -1

    @abstractmethod
    def send(self, line: dict[str, Any]) -> None:
        """Send a line to the agent; no effect if this one is closed."""

    @abstractmethod
    def read(self) -> list[dict[str, Any]]:
        """Lines that have come, without signs of life."""

    @property
    @abstractmethod
    def due_s(self) -> float:
        """Time at which to look again though nothing comes."""

    @property
    @abstractmethod
    def loss(self) -> Failure | None:
        """The reason of its loss, to follow the host's name; None while it lives."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the agent, which then ends all that it started."""


class HostLine(AgentLine):
    """A process whose streams lead to the agent; a thread writes, so that nothing here blocks."""

    def __init__(self, host: str, argv: Sequence[str], probe_argv: Sequence[str] = ()) -> None:
        """Start the process; ``probe_argv`` succeeds if the host can be reached again."""
        super().__init__(host)
        self._probe_argv = probe_argv
        self._probe: subprocess.Popen[bytes] | None = None
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # signals are passed on by us, not by the terminal
        )
        assert self._process.stdout
        assert self._process.stderr
        self._out, self._err = self._process.stdout.fileno(), self._process.stderr.fileno()
        for descriptor in (self._out, self._err):
            os.set_blocking(descriptor, False)
        self._errors = b""
        self._patience_s = CONNECT_S + SILENCE_S
        self._to_send: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._write, daemon=True).start()

    def fileno(self) -> int:
        return self._out

    def send(self, line: dict[str, Any]) -> None:
        self._to_send.put(json.dumps(line).encode() + b"\n")

    def read(self) -> list[dict[str, Any]]:
        """Lines that have come, without output of a login shell."""
        self._errors = (self._errors + _read_now(self._err)[0])[-_MOST_ERRORS:]
        data, self.is_closed = _read_now(self._out)
        if data:
            self._heard_s = time.monotonic()
            self._end_probe()
        elif time.monotonic() > self._lost_s - _DOUBT_S and self._probe is None:
            self._start_probe()
        lines, self._received = split_lines(self._received + data)
        if lines:
            self._patience_s = SILENCE_S
        return [line for line in lines if "alive" not in line]

    @property
    def _lost_s(self) -> float:
        return self._heard_s + self._patience_s

    @property
    def due_s(self) -> float:
        waits = self._probe is None and bool(self._probe_argv)
        return self._lost_s - _DOUBT_S if waits else self._lost_s

    @property
    def is_unreachable(self) -> bool:
        return self._probe is not None and self._probe.poll() != 0

    @property
    def loss(self) -> Failure | None:
        if time.monotonic() > self._lost_s:
            anew = " and cannot be reached anew" if self.is_unreachable else ""
            why = f"has not answered for {self._patience_s:.0f} s{anew}"
        elif self.is_closed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            self._errors += _read_now(self._err)[0]
            said = self._errors.decode(errors="replace").strip().splitlines()
            why = f"{_CLOSED} ({visible(said[-1].strip())})" if said else _CLOSED
        else:
            return None
        return Failure(kind=FailureKind.NODE_LOST, detail=why)

    def close(self) -> None:
        self._end_probe()
        self._to_send.put(None)
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _start_probe(self) -> None:
        if self._probe_argv:
            silent = subprocess.DEVNULL
            self._probe = subprocess.Popen(
                self._probe_argv,
                stdin=silent,
                stdout=silent,
                stderr=silent,
                start_new_session=True,
            )

    def _end_probe(self) -> None:
        if self._probe is not None:
            self._probe.kill()
            self._probe.wait()
            self._probe = None

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None
        with contextlib.suppress(OSError, ValueError):
            while True:
                try:
                    data = self._to_send.get(timeout=BEAT_S)
                except queue.Empty:
                    data = b'{"alive": true}\n'
                if data is None:
                    break
                stream.write(data)
                stream.flush()
        with contextlib.suppress(OSError):
            stream.close()


def _read_now(descriptor: int) -> tuple[bytes, bool]:
    """New data, at most a few MiB of it, and True if the other end is closed."""
    found = b""
    try:
        while len(found) < _MOST_READ_BYTES:
            if not (data := os.read(descriptor, 1 << 16)):
                return found, True
            found += data
    except BlockingIOError:
        return found, False
    except OSError:
        return found, True
    return found, False


def split_lines(received: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """The JSON objects of whole lines, and the begun line; longer or other lines are dropped."""
    *whole, begun = received.split(b"\n")
    lines = [line for text in whole if (line := _json_line(text)) is not None]
    return lines, begun if len(begun) <= MOST_LINE_BYTES else b""


def _json_line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """The first line of a host's agent; see :class:`HostDescription`.

    Attributes:
        port: a port that was free there when it began.
        unix_s: time on its clock.
        gpus: all GPUs that are there.
        versions: versions of Python and packages, by their names.
    """

    address: str
    launcher_address: str | None
    port: int
    unix_s: float
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]
    versions: Any


class Queued(Protocol):
    """A line or run that may wait for a host in a queue."""

    @property
    def is_queued(self) -> bool:
        """True while it waits."""

    def why_queued(self) -> str:
        """The reason why it waits, as a phrase; empty if unknown."""


def wait_text(queued: Iterable[Queued]) -> str:
    """A sentence on why a launch has no hosts yet."""
    why = next((each.why_queued() for each in queued if each.is_queued), "") or "they are busy"
    return f"Waiting for hosts: {why}."


def await_places(
    lines: Sequence[AgentLine], tell_wait: Callable[[], None], *, after_s: float
) -> None:
    """Return once a queue, if there is one, has given all hosts a place.

    ``tell_wait`` is called once if that takes longer than ``after_s``.
    """
    tell_s = time.monotonic() + after_s
    while any(line.is_queued for line in lines) and not any(line.loss for line in lines):
        if time.monotonic() > tell_s:
            tell_s = math.inf
            tell_wait()
        time.sleep(_LOOK_S)


def first_line(line: AgentLine) -> Introduction:
    """Wait for the agent's description of its host.

    Raises:
        HardwareError: it is lost, or sends something else.
    """
    started_s = time.monotonic()
    while True:
        for found in line.read():
            if "here" in found:
                return _introduction(line.host, found["here"])
        if (loss := line.loss) and loss.kind is not FailureKind.NODE_LOST:
            raise HardwareError(f"{loss.detail[0].upper()}{loss.detail[1:]}.")
        if loss:
            after_s = time.monotonic() - started_s
            raise HardwareError(
                f"Host {line.host} {loss.detail}, {after_s:.0f} s after the first try; see that a "
                f"command runs there without a password, or remove the host."
            )
        patience_s = min(0.5, line.look_every_s, line.due_s - time.monotonic())
        select.select([line] if line.fileno() >= 0 else [], [], [], max(0.0, patience_s))


def _introduction(host: str, said: object) -> Introduction:
    try:
        return decode(Introduction, said)
    except DecodeError as error:
        raise HardwareError(
            f"Host {host} does not describe itself as an agent does ({visible(str(error)[:200])});"
            " see what its login shell prints."
        ) from error


def host_description(host: str, here: Introduction) -> HostDescription:
    """The host of a launch; raises HardwareError if its versions differ from ours."""
    _check_versions(host, here)
    return HostDescription(
        host=host,
        address=here.address,
        launcher_address=here.launcher_address,
        cores=here.cores,
        memory_bytes=here.memory_bytes,
        gpus=seen_at_once(here.gpus),
    )


def _check_versions(host: str, here: Introduction) -> None:
    ours: dict[str, str | None] = {"Python": platform.python_version()}
    ours |= {name: _version(name) for name in SAME_ON_ALL}
    versions = here.versions if isinstance(here.versions, dict) else {}
    for name, own in ours.items():
        there = versions.get(name)
        if there != own:
            has = f"has {name} {there}" if there else f"lacks {name}"
            raise HardwareError(
                f"Host {host} {has}, but this one has {own or 'none'}; install the same on all "
                "hosts."
            )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
