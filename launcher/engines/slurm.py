"""Engines ``slurm`` and ``sbatch``: steps of an allocation, and a batch job for each launch.

The text of Slurm's commands is read, as their JSON differs between versions.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from autoconf_launch.core import ConfigError, Failure, FailureKind, HardwareError, visible

from ..asked import HostSource
from ..plan import LaunchPlan, StepSize
from ..request import LaunchRequest, RemoteAccess
from .base import HostSlots
from .folder_line import FolderLine, Starter, last_line, make_line_folder
from .hosts_job import HostsJob
from .line import agent_command
from .over_hosts import (
    PLAIN,
    LinesOrder,
    PipeEngine,
    QueuedEngine,
    in_shell,
    require_program,
    without_shell,
)

JOB_ID = re.compile("[1-9][0-9]{0,9}")
_LOG = "engine.log"
_WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD"})
_ALIVE = _WAITING | {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "RESIZING"}
_KINDS = {
    "NODE_FAIL": FailureKind.NODE_LOST,
    "BOOT_FAIL": FailureKind.NODE_LOST,
    "PREEMPTED": FailureKind.PREEMPTED,
    "CANCELLED": FailureKind.PREEMPTED,
    "TIMEOUT": FailureKind.TIMED_OUT,
    "DEADLINE": FailureKind.TIMED_OUT,
    "OUT_OF_MEMORY": FailureKind.OUT_OF_MEMORY,
}
"""States of a job that ended without our exit files; any other is a crash."""
_NEVER_STARTS = re.compile(r"Partition\w+Limit|\w+PerJob\w*|JobHeld\w+|BadConstraints|Invalid\w+")
"""Reasons for which a job waits until a user changes it (squeue(1), job reason codes)."""
_FIRST_LOOK_S, _LAST_LOOK_S = 1.0, 15.0
_START_S = 60.0
"""Longest time from the start of a job to the first message of its agents."""
_PATIENCE_S = 60.0
_SPARE_S = 120.0
"""Time to start and to end that Slurm's limit allows beyond our own deadline."""
_NO_STEP_OF_OURS = 0xFFFFFFF0
"""Numbers from here on are Slurm's own, for batch scripts and the shell of salloc."""


def submit_job(words: Sequence[str], variables: Mapping[str, str]) -> int:
    """The number of a new job; ``words`` follow ``sbatch``.

    Raises:
        ConfigError: sbatch is not installed, or refuses it.
    """
    require_program("sbatch", "A job of Slurm")
    answer = _run("sbatch", "--parsable", *words, variables=variables)
    number = answer.stdout.strip().partition(";")[0]
    if answer.returncode or not JOB_ID.fullmatch(number):
        raise ConfigError(f"Slurm refuses the job: {last_line(answer.stderr)}.")
    return int(number)


def cancel_jobs(*jobs: int) -> None:
    """End jobs that wait or run; nothing happens to others."""
    _run("scancel", "--quiet", *map(str, jobs))


def find_job_states(jobs: Sequence[int]) -> dict[int, str]:
    """The state of each job that Slurm still knows, by squeue, else scontrol, else sacct."""
    listed = ",".join(map(str, jobs))
    text = _run(
        "squeue", "--noheader", "--states=all", f"--jobs={listed}", "--format=%i|%T"
    ).stdout
    rows = (line.strip().partition("|") for line in text.splitlines())
    found = {int(name): state for name, _, state in rows if JOB_ID.fullmatch(name)}
    for job in jobs:
        if job not in found and (state := _find_old_state(job)):
            found[job] = state
    return found


def _find_old_state(job: int) -> str | None:
    shown = _run("scontrol", "show", "job", str(job), "--oneliner").stdout
    if state := re.search(r"\bJobState=([A-Z_]+)", shown):
        return state[1]
    if shutil.which("sacct") is None:
        return None
    words = ("--allocations", "--noheader", "--parsable2", "--format=State")
    rows = _run("sacct", f"--jobs={job}", *words).stdout.split()
    return rows[0] if rows and rows[0].isupper() else None


def pending_text(job: int) -> str:
    """A phrase on a job that waits, with Slurm's word for the reason if it has one."""
    said = _run("squeue", "--noheader", f"--jobs={job}", "--format=%r").stdout.strip()
    reason = "" if said in ("", "None") else f" ({visible(said)})"
    never = _NEVER_STARTS.fullmatch(said) is not None
    hint = f" and will not start; scancel {job}, and ask for what Slurm allows" if never else ""
    return f"job {job} of Slurm is pending{reason}{hint}"


class SlurmQueue:
    """The states of our jobs, queried all at once, less and less often while none changes."""

    def __init__(self) -> None:
        self._states: dict[int, str] = {}
        self._look_s = self._pause_s = 0.0

    def add(self, job: int) -> None:
        """Watch a job that was just submitted."""
        self._states[job] = "PENDING"
        self._pause_s = _FIRST_LOOK_S
        self._look_s = time.monotonic() + self._pause_s

    def state(self, job: int) -> str:
        """State as of the last look; a job unknown to Slurm keeps its state."""
        alive = [number for number, state in self._states.items() if state in _ALIVE]
        if alive and time.monotonic() > self._look_s:
            found = find_job_states(alive)
            is_new = any(self._states[number] != state for number, state in found.items())
            self._states.update(found)
            self._pause_s = _FIRST_LOOK_S if is_new else min(1.5 * self._pause_s, _LAST_LOOK_S)
            self._look_s = time.monotonic() + self._pause_s
        return self._states.get(job, "PENDING")

    def is_waiting(self, job: int) -> bool:
        return self.state(job) in _WAITING

    def why_over(self, job: int) -> Failure | None:
        """The end of a job; None while it waits or runs."""
        state = self.state(job)
        if state in _ALIVE:
            return None
        kind = _KINDS.get(state, FailureKind.CRASHED)
        return Failure(kind=kind, detail=f"job {job} of Slurm ended as {state}")


def is_slurm_here() -> bool:
    """True if a Slurm on this machine accepts jobs."""
    return shutil.which("sbatch") is not None and not _run("sinfo", "--noheader").returncode


class SlurmStarter(Starter):
    """A batch job that starts the agents of all hosts of a launch."""

    def __init__(self, folder: Path, nodes: int, queue: SlurmQueue) -> None:
        super().__init__(folder)
        self._nodes, self._queue = nodes, queue
        self._created_s = time.monotonic()
        self._ran_s: float | None = None

    def submit(self, access: RemoteAccess, *options: str, secrets: Mapping[str, str]) -> None:
        """Queue the job; the user's words for sbatch come after ``options``.

        Raises:
            ConfigError: Slurm refuses it; the folder is removed.
        """
        script = self._folder / "job.sh"
        command = (*agent_command(math.inf), str(self._folder), "SLURM_NODEID")
        size = (f"--nodes={self._nodes}", f"--ntasks={self._nodes}", "--ntasks-per-node=1")
        step = ("srun", "--mpi=none", "--cpu-bind=none", *size, *without_shell(access, command))
        log = shlex.quote(str(self._folder / _LOG))  # Slurm would expand a % in it
        script.write_text(f"#!/bin/sh\nexec >{log} 2>&1\nexec {shlex.join(step)}\n")
        place = ("--chdir=/", "--output=/dev/null", "--no-requeue", "--export=ALL")
        try:
            words = (*size, *place, *options, *access.arguments, str(script))
            self.pid = submit_job(words, secrets)
        except ConfigError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._queue.add(self.pid)

    def why_over(self, node: int) -> Failure | None:
        if not self.is_queued(node):
            self._ran_s = self._ran_s or time.monotonic()
        if (over := self._queue.why_over(self.pid)) is None:
            return None
        said = self._last_words() or "it printed nothing; see that its nodes share this folder"
        return replace(over, detail=f"{over.detail} ({said})")

    def is_queued(self, node: int) -> bool:
        return self._queue.is_waiting(self.pid)

    def why_queued(self, node: int) -> str:
        return pending_text(self.pid)

    def patience_s(self, node: int) -> float:
        if self._ran_s is None:
            return math.inf
        return self._ran_s - self._created_s + _START_S

    def end(self) -> None:
        """Cancel a job that waits or runs, and remove its files."""
        if self.pid and self._queue.why_over(self.pid) is None:
            cancel_jobs(self.pid)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            return last_line((self._folder / _LOG).read_text(errors="replace"))
        return ""


class SrunEngine(PipeEngine):
    """Steps inside an allocation, whose nodes are the hosts."""

    host_source = HostSource.ENGINE
    program = "srun"

    def find_hosts(self, request: LaunchRequest) -> tuple[HostSlots, ...] | None:
        """The allocation's nodes, each with as many slots as are requested, else with its GPUs."""
        if request.hosts.standalone:
            return None
        nodes = os.environ.get("SLURM_JOB_NODELIST")
        if not nodes or shutil.which("scontrol") is None:
            raise ConfigError(
                "--launcher slurm starts ranks on the nodes of an allocation, and this is none "
                "(SLURM_JOB_NODELIST is not set); use it inside salloc or sbatch, or queue a job "
                "for each launch with --launcher sbatch."
            )
        answer = _run("scontrol", "show", "hostnames", nodes)
        if answer.returncode:
            why = answer.stderr.strip()
            raise HardwareError(f"scontrol does not know the nodes {nodes}: {why}")
        return self.slots_of(tuple(answer.stdout.split()), request)

    def step_size(self, gpus: int, part: float) -> StepSize | None:
        """A part of the allocation's cores of each host; none inside a step, which has it all."""
        if int(os.environ.get("SLURM_STEP_ID", _NO_STEP_OF_OURS)) < _NO_STEP_OF_OURS:
            return None
        counts = os.environ.get("SLURM_JOB_CPUS_PER_NODE", "")  # as in 8(x2),4
        least = min(map(int, re.findall(r"(?:^|,)(\d+)", counts)), default=0)
        cores = int(least * part)
        return StepSize(cores=cores, gpus=gpus if _gives_gpus() else 0) if cores else None

    def reach(
        self, host: str, folder: str, command: tuple[str, ...], step: StepSize | None
    ) -> tuple[str, ...]:
        """Argv of a step with its own cores and GPUs or, by default, besides others.

        Memory is not divided: with ``--mem=0`` each step may use all of the job's.
        """
        access = self._access
        place: tuple[str, ...] = ("--nodes=1", "--ntasks=1", f"--nodelist={host}")
        place = (*place, f"--chdir={folder}")
        if step is not None:
            gpus = f"gpu:{step.gpus}" if step.gpus else "none"
            own = ("--exact", "--mem=0", f"--cpus-per-task={step.cores}", f"--gres={gpus}")
            place = (*own, *place)
        else:
            place = ("--overlap", *place)
        if access.venv_script:
            command = ("/bin/sh", "-c", in_shell(access, folder, command))
        return ("srun", *place, "--unbuffered", *access.arguments, *command)


def _gives_gpus() -> bool:
    job = os.environ.get("SLURM_JOB_ID", "")
    answer = _run("scontrol", "show", "job", job) if job.isdecimal() else None
    return answer is not None and re.search("gres[:/]gpu", answer.stdout) is not None


class SbatchEngine(QueuedEngine):
    """Each plan is a batch job; ``access.arguments`` are words for sbatch.

    The agents' files in the trial's folder decide how it went; Slurm is only asked whether there
    is still something to wait for.
    """

    queue = "Slurm"
    handles = JOB_ID
    ends_within_s = 30.0

    @cached_property
    def _queue(self) -> SlurmQueue:
        return SlurmQueue()

    def open_lines(
        self, hosts: Sequence[str], order: LinesOrder = PLAIN
    ) -> tuple[FolderLine, ...]:
        starter = SlurmStarter(make_line_folder(order.folder), len(hosts), self._queue)
        starter.submit(self._access, secrets=order.secrets)
        return starter.lines(hosts)

    def submit(self, plan: LaunchPlan) -> HostsJob:
        """Write the orders, then queue a job that starts an agent on each of its hosts.

        Raises:
            ConfigError: Slurm is not installed here, or refuses the job.
            OSError: the plan's folder cannot be written.
        """
        job, starter, _, secrets = self.make_queued_job(
            plan, lambda folder, nodes: SlurmStarter(folder, nodes, self._queue)
        )
        job.look()
        limit = job.deadline_s + _SPARE_S
        time_limit = () if limit == math.inf else (f"--time={math.ceil(limit / 60)}",)
        starter.submit(self._access, f"--job-name={plan.name}", *time_limit, secrets=secrets)
        job.queued_as = str(starter.pid)
        return job

    def delete(self, handle: str) -> None:
        cancel_jobs(int(handle))

    def is_alive(self, handle: str) -> bool:
        state = find_job_states([int(handle)]).get(int(handle))
        return state in ("RUNNING", "COMPLETING", "SUSPENDED")


def _run(
    *command: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The answer of a command of Slurm; a command that hangs has failed."""
    environment = {**os.environ, **(variables or {})}
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        said = f"{command[0]} does not answer within {_PATIENCE_S:.0f} s"
        return subprocess.CompletedProcess(command, 1, "", said)
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]}: {error.strerror}")
