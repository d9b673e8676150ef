"""The line to an agent on another host: JSON lines through the streams of one process."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from autoconf_launch.core import Failure, FailureKind, visible

from ..request import RemoteAccess
from .reach import CONNECT_S, is_this_machine, reach_host

BEAT_S = 2.0
SILENCE_S = 10.0
"""Each end takes the other one for lost after this long without a line."""
_DOUBT_S = 5.0
"""How long before that a second connection is tried, which says whether a first one is any use."""
_AGENT = Path(__file__).parents[1] / "launch" / "host_agent.py"
SAME_ON_ALL = ("autoconf-launch", "torch")
"""Packages whose versions must be the same on all hosts."""
_MOST_ERRORS = 4096
_MOST_READ_BYTES = 4 << 20
MOST_LINE_BYTES = 16 << 20
"""What a host says in one line; a file of a rank takes 6 MiB at most."""
_CLOSED = "closed the connection"


def open_line(host: str, access: RemoteAccess) -> HostLine:
    """Start the agent of a host, this one or another.

    Raises:
        ConfigError: the host cannot be reached with this engine.
    """
    command = agent_command()
    if is_this_machine(host):
        return HostLine(host, command)
    reach = partial(reach_host, host, folder=str(Path.cwd()))
    probe = reach(replace(access, step=None), command=("true",))
    return HostLine(host, reach(access, command=command), probe)


def agent_command(silence_s: float = SILENCE_S) -> tuple[str, ...]:
    """Argv of an agent whose line is a pipe."""
    about = (str(BEAT_S), str(silence_s), ",".join(SAME_ON_ALL))
    return (sys.executable, "-I", str(_AGENT), *about)


class HostLine:
    """A process whose streams lead to the agent; a thread writes, so that nothing here blocks."""

    look_every_s = math.inf
    is_queued = False
    is_shared = awaits_all = False
    """As a folder's lines have them."""

    def __init__(self, host: str, argv: Sequence[str], probe_argv: Sequence[str] = ()) -> None:
        """Start the process; ``probe_argv`` succeeds where the host can be reached anew."""
        self.host = host
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
        self._received = b""
        self._errors = b""
        self._heard_s = time.monotonic()
        self._patience_s = CONNECT_S + SILENCE_S
        self.is_closed = False
        self._to_send: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._write, daemon=True).start()

    def fileno(self) -> int:
        """What to poll for lines."""
        return self._out

    @property
    def pid(self) -> int:
        """Number of the process here."""
        return self._process.pid

    def why_queued(self) -> str:
        """Nothing: no queue is between us."""
        return ""

    def send(self, line: dict[str, Any]) -> None:
        """Hand a line to the agent; without effect where the line is closed."""
        self._to_send.put(json.dumps(line).encode() + b"\n")

    def read(self) -> list[dict[str, Any]]:
        """Lines that have come, without signs of life and what a login shell prints."""
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
    def silent_s(self) -> float:
        """How long ago it was last heard of."""
        return time.monotonic() - self._heard_s

    @property
    def _lost_s(self) -> float:
        """When it counts as lost, unless something comes."""
        return self._heard_s + self._patience_s

    @property
    def due_s(self) -> float:
        """When to look again though nothing comes."""
        waits = self._probe is None and bool(self._probe_argv)
        return self._lost_s - _DOUBT_S if waits else self._lost_s

    @property
    def is_unreachable(self) -> bool:
        """Whether a second connection, tried since it is silent, has not come about either."""
        return self._probe is not None and self._probe.poll() != 0

    @property
    def loss(self) -> Failure | None:
        """What became of it, to follow the host's name; None while it lives."""
        why = self.why_lost
        return Failure(kind=FailureKind.NODE_LOST, detail=why) if why else None

    @property
    def why_lost(self) -> str | None:
        """What became of it, to follow the host's name; None while it lives."""
        if time.monotonic() > self._lost_s:
            anew = " and cannot be reached anew" if self.is_unreachable else ""
            return f"has not answered for {self._patience_s:.0f} s{anew}"
        if not self.is_closed:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._errors += _read_now(self._err)[0]
        said = self._errors.decode(errors="replace").strip().splitlines()
        return f"closed the connection ({visible(said[-1].strip())})" if said else _CLOSED

    def close(self) -> None:
        """Let go of the agent, which then ends all that it started."""
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
    """What has come, a part of it where that is much, and whether the other end is closed."""
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
    """The JSON objects of whole lines, and the begun line; what is longer or no object is lost."""
    *whole, begun = received.split(b"\n")
    lines = [line for text in whole if (line := _json_line(text)) is not None]
    return lines, begun if len(begun) <= MOST_LINE_BYTES else b""


def _json_line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
