"""Finds and ends what a killed agent left behind. Not: the ordinary end (the agent's work)."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from autoconf_launch.core.rank import JOB_VARIABLE

from .. import agent


def kill_strays(token: str, session: int | None) -> bool:
    """Send SIGKILL to each process with that token, or of that session; whether any lived."""
    mark = f"{JOB_VARIABLE}={token}".encode()
    hit = False
    for pid, fields in agent.living_processes():
        if pid != os.getpid() and (int(fields[3]) == session or _is_marked(pid, mark)):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
            hit = True
    return hit


def await_agent(pid: int, timeout_s: float) -> bool:
    """Wait until an agent whose controller died has ended everything; whether it has.

    ``pid`` is of its job (:class:`~.local_job.LocalJob`); a number that another process has taken
    since counts as ended.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        if not _is_agent(pid):
            return True
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)  # a stopped one hears nothing
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout_s * 1e3))
    finally:
        os.close(descriptor)


def _is_agent(pid: int) -> bool:
    try:
        return agent.__file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
