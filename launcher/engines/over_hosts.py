"""Engines that reach other hosts: an agent on each host starts the ranks there.

They differ in how the agents are started: one process for each host (:class:`PipeEngine`), one
process for all (:class:`GroupEngine`), or a job of a queue (:class:`QueuedEngine`).
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from autoconf_launch.core import ConfigError, Failure, FailureKind

from ..asked import HostSource
from ..events import Note
from ..interrupts import stopping_on_signals
from ..machine import LOCAL, is_this_machine
from ..plan import LaunchPlan, StepSize
from ..request import LaunchRequest, RemoteAccess
from ..results import is_secret_variable
from .agents import AgentEngine
from .base import UNSAID_WAIT_S, HostDescription, HostSlots, Job, JobEnd
from .folder_line import Starter, StartingProcess, make_line_folder
from .hosts_job import HostsJob, JobAgent
from .line import (
    AgentLine,
    HostLine,
    agent_command,
    await_places,
    first_line,
    host_description,
    wait_text,
)

PASSED_ON = (
    *("AUTOCONF_LAUNCH", "GLOO", "HF_", "MLFLOW", "MV2"),
    *("NCCL", "OMP", "PYTHON", "TORCH", "UCX"),
)
"""Beginnings of variables that ranks on other hosts get from here, DeepSpeed's among them."""
_LOOK_S = 0.5
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]*")
_PACKAGES = {
    "ssh": "openssh-client",
    "srun": "slurm-client",
    "sbatch": "slurm-client",
    "pdsh": "pdsh",
    "mpirun": "openmpi-bin or mpich",
}
_DESCRIBED: dict[tuple[tuple[str, ...], RemoteAccess], tuple[HostDescription, ...]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesOrder:
    """Conditions under which agents are started.

    Attributes:
        folder: parent of the files of an engine without pipes.
        secrets: variables that the engine passes on outside of files, if it can.
        step: reservation on each host for this launch.
    """

    folder: str = "."
    secrets: Mapping[str, str] = field(default_factory=dict)
    step: StepSize | None = None


PLAIN = LinesOrder()


class HostsEngine(AgentEngine[HostsJob], ABC):
    """Runs ranks on the hosts of a plan.

    ``access``: the user's way to the hosts. ``deadline_s``: longest run of a trial in a queue.
    """

    job_type = HostsJob

    def __init__(
        self,
        access: RemoteAccess | None = None,
        *,
        deadline_s: float = math.inf,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._access, self._deadline_s = access or RemoteAccess(), deadline_s
        self._orphans: tuple[str, ...] = ()
        self._has_told_wait = False

    @abstractmethod
    def open_lines(self, hosts: Sequence[str], order: LinesOrder = PLAIN) -> tuple[AgentLine, ...]:
        """Start an agent on every host.

        Raises:
            ConfigError: a host cannot be reached with this engine.
        """

    def describe_hosts(self, hosts: tuple[str, ...]) -> tuple[HostDescription, ...]:
        """Have all hosts describe themselves at once; answers are kept.

        Raises:
            ConfigError: the engine is not installed, or a name cannot be a host's.
            HardwareError: a host cannot be reached, or has other versions than this one.
            InterruptedBySignalError: a signal came; nothing is left in a queue.
        """
        key = (hosts, self._access)
        if key not in _DESCRIBED:
            with stopping_on_signals():
                lines = self.open_lines(hosts)
                try:
                    await_places(lines, lambda: self._tell_wait(lines), after_s=UNSAID_WAIT_S)
                    introductions = [first_line(line) for line in lines]
                finally:
                    for line in lines:
                        line.close()
            _DESCRIBED[key] = tuple(map(host_description, hosts, introductions))
        return _DESCRIBED[key]

    def slots_of(self, hosts: tuple[str, ...], request: LaunchRequest) -> tuple[HostSlots, ...]:
        """As many slots of each host as are requested, else its GPUs."""
        if isinstance(request.processes, int):
            slots = [tuple(range(request.processes)) for _ in hosts]
        else:
            described = self.describe_hosts(hosts)
            slots = [tuple(gpu.index for gpu in each.gpus) or (0,) for each in described]
        return tuple(HostSlots(host=h, slots=own) for h, own in zip(hosts, slots, strict=True))

    def submit(self, plan: LaunchPlan) -> HostsJob:
        """Start an agent on every host; each gets its ranks once all have answered.

        Raises:
            ConfigError: a host cannot be reached with this engine.
            OSError: the plan's folder cannot be written, or no process can be started.
        """
        variables, secrets = prepare_start(plan)
        hosts = plan.hosts or (LOCAL,)
        order = LinesOrder(folder=plan.folder or ".", secrets=secrets, step=plan.step)
        lines = self.open_lines(hosts, order)
        return self.make_job(plan, lines, variables, secrets)

    def make_job(
        self,
        plan: LaunchPlan,
        lines: Sequence[AgentLine],
        variables: Mapping[str, str],
        secrets: Collection[str],
    ) -> HostsJob:
        """A job over these lines; no order in a shared folder contains ``secrets``."""
        agents = tuple(
            JobAgent(node, line, tuple(rank for rank in plan.ranks if rank.node == node))
            for node, line in enumerate(lines)
        )
        hidden = secrets if any(line.is_shared for line in lines) else ()
        job = HostsJob(plan, agents, variables, hidden, **self._times_s)
        job.orphans = self._orphans
        return job

    def _look(self, job: HostsJob) -> JobEnd | None:
        end = super()._look(job)
        if end is None and job.waited_s > UNSAID_WAIT_S:
            self._tell_wait([agent.line for agent in job.agents])
        return end

    def _tell_wait(self, lines: Sequence[AgentLine]) -> None:
        if not self._has_told_wait:
            self._has_told_wait = True
            self._notify(Note(text=wait_text(lines)))

    def send_signal(self, job: Job, number: int) -> None:
        """Pass a signal on to the ranks of all hosts; it ends a job that waits for hosts."""
        own = self._own(job)
        if own.is_queued:
            for agent in own.agents:
                agent.lost_code = -number
            waited = Failure(kind=FailureKind.PREEMPTED, detail="was ended before it had hosts")
            self.cancel(job, waited)
        super().send_signal(job, number)

    def end_orphan(self, handle: str, host: str) -> None:
        """Have agents that are started from here on end its ranks first, if any still live.

        On other hosts they end by themselves, ten silent seconds after their controller.
        """
        if re.fullmatch("[0-9a-f]{32}", handle):
            self._orphans = (*self._orphans, handle)


class PipeEngine(HostsEngine):
    """A process for each host, whose streams lead to the agent."""

    program: ClassVar[str]

    @abstractmethod
    def reach(
        self, host: str, folder: str, command: tuple[str, ...], step: StepSize | None
    ) -> tuple[str, ...]:
        """Argv of a local process whose streams are a command's on that host, in that folder."""

    def open_lines(self, hosts: Sequence[str], order: LinesOrder = PLAIN) -> tuple[AgentLine, ...]:
        return tuple(self._open_line(host, order.step) for host in hosts)

    def _open_line(self, host: str, step: StepSize | None) -> HostLine:
        command = agent_command()
        if is_this_machine(host):
            return HostLine(host, command)
        require_host_name(host)
        require_program(self.program, f"--launcher {self._access.engine}")
        reach = partial(self.reach, host, str(Path.cwd()))
        return HostLine(host, reach(command, step), reach(("true",), None))


class GroupEngine(HostsEngine):
    """A process for all hosts, such as ``mpirun``; the lines are files of a shared folder."""

    program: ClassVar[str]

    @abstractmethod
    def reach_all(
        self, hosts: tuple[str, ...], command: tuple[str, ...], exported: tuple[str, ...]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Argv and variables of a local process that runs a command once on every host.

        A last word is added that gives the host's number; ``exported`` are names of variables
        that go along if the engine can.

        Raises:
            ConfigError: the engine cannot take a host's name.
        """

    def open_lines(self, hosts: Sequence[str], order: LinesOrder = PLAIN) -> tuple[AgentLine, ...]:
        for host in hosts:
            require_host_name(host)
        require_program(self.program, f"--launcher {self._access.engine}")
        own, secrets = make_line_folder(order.folder), order.secrets
        try:
            command = (*agent_command(), str(own))
            words, variables = self.reach_all(tuple(hosts), command, tuple(secrets))
        except ConfigError:
            shutil.rmtree(own)
            raise
        return StartingProcess(words, own, {**variables, **secrets}).lines(hosts)


_Starter = TypeVar("_Starter", bound=Starter)


class QueuedEngine(HostsEngine):
    """Each launch is a job of a queue, which finds its hosts and outlives a controller."""

    host_source = HostSource.LAUNCH
    handles: ClassVar[re.Pattern[str]]
    """Names of jobs of this queue."""
    ends_within_s: ClassVar[float]
    """Seconds that processes of a job may live once it is deleted."""

    def find_hosts(self, request: LaunchRequest) -> tuple[HostSlots, ...]:
        return self.slots_of(unnamed_hosts(request), request)

    def make_queued_job(
        self, plan: LaunchPlan, make_starter: Callable[[Path, int], _Starter]
    ) -> tuple[HostsJob, _Starter, Path, dict[str, str]]:
        """A job that is not queued yet, the starter of its agents, their folder, and secrets."""
        variables, secrets = prepare_start(plan)
        hosts = plan.hosts or (LOCAL,)
        folder = make_line_folder(plan.folder or ".")
        starter = make_starter(folder, len(hosts))
        job = self.make_job(plan, starter.lines(hosts), variables, secrets)
        job.deadline_s = self._deadline_s if plan.task else math.inf
        return job, starter, folder, secrets

    def cancel(self, job: Job, reason: Failure) -> None:
        """Have agents end their ranks; a job that still waits has none."""
        super().cancel(job, reason)
        own = self._own(job)
        if self.handles.fullmatch(own.handle) and not any(agent.here for agent in own.agents):
            self.cancel_waiting(own.handle)

    def end_orphan(self, handle: str, host: str) -> None:
        """Delete the job of a dead controller, and wait until its processes have ended."""
        if not self.handles.fullmatch(handle):
            return
        self.delete(handle)
        until_s = time.monotonic() + self.ends_within_s
        while time.monotonic() < until_s and self.is_alive(handle):
            time.sleep(_LOOK_S)

    def cancel_waiting(self, handle: str) -> None:
        """Take a job that waits out of the queue."""
        self.delete(handle)

    @abstractmethod
    def delete(self, handle: str) -> None:
        """Take a job out of the queue, or end it."""

    @abstractmethod
    def is_alive(self, handle: str) -> bool:
        """True if processes of a deleted job may still run."""


def unnamed_hosts(request: LaunchRequest) -> tuple[str, ...]:
    """Stand-ins for the names of hosts that each launch gets."""
    return tuple(f"node-{number}" for number in range(request.hosts.nodes or 1))


def prepare_start(plan: LaunchPlan) -> tuple[dict[str, str], dict[str, str]]:
    """Make a plan's folder; our variables that ranks get, and all variables that are secrets.

    Raises:
        OSError: the folder cannot be written.
    """
    if plan.folder is not None:
        Path(plan.folder).mkdir(parents=True, exist_ok=True)
    variables = passed_variables()
    ranks = (pair for rank in plan.ranks for pair in rank.environment)
    secrets = {n: text for n, text in (*variables.items(), *ranks) if is_secret_variable(n, text)}
    return variables, secrets


def passed_variables() -> dict[str, str]:
    """Variables of our environment that ranks on other hosts get."""
    return {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}


def require_program(program: str, caller: str) -> None:
    """Check that a program of an engine is there.

    Raises:
        ConfigError: it is not installed.
    """
    if shutil.which(program) is not None:
        return
    if program not in _PACKAGES:
        raise ConfigError(
            f"{caller} needs {program}, which only its own cluster has; run it there."
        )
    raise ConfigError(
        f"{caller} needs {program}, which is not installed; install it "
        f"(Debian: {_PACKAGES[program]}) or take another launcher."
    )


def require_host_name(host: str) -> None:
    """Check that no program could read a host's name as an option.

    Raises:
        ConfigError: it is not a name or an address.
    """
    if not _HOST.fullmatch(host):
        raise ConfigError(
            f"Host {host!r} is not a name or an address of a host; fix the hostfile."
        )


def in_shell(access: RemoteAccess, folder: str, command: Sequence[str]) -> str:
    """A shell's line that runs a command in a folder, with the user's environment script."""
    steps = [shlex.join(("cd", folder))]
    if access.venv_script:
        steps.append(shlex.join((".", access.venv_script)))
    return " && ".join((*steps, "exec " + shlex.join(command)))


def without_shell(access: RemoteAccess, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command itself, unless a script of the environment needs a shell to source it."""
    if access.venv_script is None:
        return command
    return ("/bin/sh", "-c", in_shell(access, str(Path.cwd()), command))
