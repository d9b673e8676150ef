"""Runs plans over several hosts, each host's ranks below an agent there.

What ranks write and print travels up the line of their host. Through a pipe that needs no shared
folder; where the results folder is shared, only results travel, as caches may hide them.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import select
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoconf_launch.core import (
    END_FILE,
    JOB_VARIABLE,
    SIGNS_FOLDER,
    Failure,
    FailureKind,
    decode,
    result_file,
    visible,
)

from ..hosts import (
    LOCAL,
    UNSAID_WAIT_S,
    AgentLine,
    Introduction,
    open_lines,
    wait_text,
)
from ..launch import STDERR_LOG, STDOUT_LOG, Cancelled, RanksEnd, read_outcome
from ..plan import LaunchPlan, RankPlan
from ..request import RemoteAccess
from ..results import is_secret_variable, open_private, write_private
from .base import Job, JobEnd
from .job_agent import HostLogs, JobAgent
from .local import (
    GRACE_S,
    LINGER_S,
    OBEYS_WITHIN_S,
    extension_caches,
    shared_memory,
    wake_on_signals,
)

PASSED_ON = (
    *("AUTOCONF_LAUNCH", "GLOO", "HF_", "MLFLOW", "MV2"),
    *("NCCL", "OMP", "PYTHON", "TORCH", "UCX"),
)
"""Beginnings of variables that ranks on other hosts get from here, DeepSpeed's among them."""
_ADDRESS, _PORT = "MASTER_ADDR", "MASTER_PORT"
_MOST_SENT_BYTES = 4 << 20  # of a file that a trial's ranks read
_LONGEST_QUOTE = 200
_NAME = re.compile(rf"(?:{SIGNS_FOLDER}/)?[A-Za-z0-9_][A-Za-z0-9_.\-]{{0,200}}")


class HostsJob:
    """A plan and the agents that run it."""

    def __init__(
        self,
        plan: LaunchPlan,
        agents: tuple[JobAgent, ...],
        variables: Mapping[str, str],
        secrets: Collection[str] = (),
    ) -> None:
        self.plan, self.agents = plan, agents
        self.token = uuid.uuid4().hex
        self.queued_as = ""
        """Number of the batch job that it is, if it is one."""
        self.cancelled: Cancelled | None = None
        self.was_told_to_end = False
        """Whether somebody here ended it, not what became of a host."""
        self.end: JobEnd | None = None
        self.due_s = float("inf")
        """When agents that were told to end count as lost."""
        self.deadline_s = float("inf")
        """What agents let their ranks take, whoever lives."""
        self._passed_variables = {n: v for n, v in variables.items() if n not in secrets}
        self._secrets = secrets
        """Names of variables that no order says, as it is a file."""
        self.orphans: tuple[str, ...] = ()
        """Handles of launches whose controller has died."""
        self._started_s = time.monotonic()
        self._was_sent = False
        self._end_s = float("inf")
        self._told_end = ""
        self._terminated_unix_s: float | None = None
        self._marker = _make_marker(plan.folder, self.token)
        self._logs = HostLogs(plan.folder)

    @property
    def handle(self) -> str:
        """What its ranks are marked with, or the batch job that it is."""
        return self.queued_as or self.token

    @property
    def is_queued(self) -> bool:
        """Whether it waits for hosts, which does not count as time of the trial."""
        lines = [agent.line for agent in self.agents if not agent.has_ended]
        gathers = not self._was_sent and any(line.awaits_all for line in lines)
        return gathers or any(line.is_queued for line in lines)

    @property
    def waited_s(self) -> float:
        """How long it has waited for hosts, if it does so now."""
        return time.monotonic() - self._started_s if self.is_queued else 0.0

    def send(self, line: dict[str, Any]) -> None:
        """Give every agent the same command."""
        for agent in self.agents:
            if not agent.has_ended:
                agent.line.send(line)

    @property
    def wake_s(self) -> float:
        """When something is due though no line says anything."""
        lines = (agent.line.due_s for agent in self.agents if not agent.has_ended)
        return min((*lines, self._end_s, self.due_s))

    def look(self, linger_s: float, grace_s: float) -> JobEnd | None:
        """Take in what has come, do what is due; the end once every host has ended."""
        if self.end is not None:
            return self.end
        for agent in self.agents:
            if not agent.has_ended:
                self._take(agent, linger_s)
        if not self._was_sent and all(map(_can_be_told, self.agents)):
            self._send_documents(linger_s, grace_s)
        self._pass_end_on()
        if time.monotonic() > self._end_s:
            self._end_s = float("inf")
            self._terminated_unix_s = self._terminated_unix_s or time.time()
            self.send({"end": True})
            self.due_s = min(self.due_s, time.monotonic() + grace_s + OBEYS_WITHIN_S)
        if all(agent.has_ended for agent in self.agents):
            self._finish()
        return self.end

    def _take(self, agent: JobAgent, linger_s: float) -> None:
        for line in agent.line.read():
            try:
                self._hear(agent, line, linger_s)
            except (KeyError, TypeError, ValueError) as error:
                said = visible(str(error)[:_LONGEST_QUOTE])
                detail = f"host {agent.line.host} says what no agent says ({said})"
                self._lose(agent, Failure(kind=FailureKind.NODE_LOST, detail=detail))
                return
        if agent.has_ended:
            agent.line.close()
            return
        loss = agent.line.loss
        if loss is None and time.monotonic() > self.due_s:
            loss = Failure(kind=FailureKind.NODE_LOST, detail="does not end its ranks")
        if loss is not None:
            named = replace(loss, detail=f"host {agent.line.host} {loss.detail}")
            self._lose(agent, named if loss.kind is FailureKind.NODE_LOST else loss)

    def _hear(self, agent: JobAgent, line: dict[str, Any], linger_s: float) -> None:
        if "here" in line:
            agent.here = decode(Introduction, line["here"])
            agent.clock_s = agent.here.unix_s - time.time()
        elif "stream" in line:
            self._logs.write(int(line["stream"]), base64.b64decode(line["data"]))
        elif "file" in line:
            self._keep(agent, str(line["file"]), line["data"])
        elif "failed" in line:
            self._end_s = min(self._end_s, time.monotonic() + linger_s)
        elif "overdue" in line:
            detail = f"did not end within {self.deadline_s:g} s"
            failure = Failure(kind=FailureKind.TIMED_OUT, detail=detail)
            self.was_told_to_end = True
            self.cancelled = self.cancelled or Cancelled(reason=failure, unix_s=time.time())
        elif "report" in line:
            agent.take_report(line["report"])

    def _lose(self, agent: JobAgent, loss: Failure) -> None:
        agent.lost, agent.lost_unix_s = loss.detail, time.time() - agent.line.silent_s
        had_ranks = self._was_sent and agent.here is not None
        if had_ranks or self.cancelled is None:
            agent.losses = 2 if agent.line.is_unreachable else 1
        agent.line.close()
        if self.cancelled is None:  # as of when it was lost: its peers fail before that is seen
            self.cancelled = Cancelled(reason=loss, unix_s=agent.lost_unix_s)
        self._end_s = min(self._end_s, time.monotonic())

    def _send_documents(self, linger_s: float, grace_s: float) -> None:
        self._was_sent = True
        address, port = self._meeting_place()
        for agent in self.agents:
            own_address = agent.here.address if agent.here else ""
            is_ours = agent.here is not None and agent.here.launcher_address is None
            agent.line.send(
                {
                    "working_directory": self.plan.working_directory,
                    "linger_s": linger_s if self.plan.task else 0.0,
                    "grace_s": grace_s,
                    "attempt": self.plan.task and self.plan.task.attempt,
                    "extension_caches": extension_caches(self._passed_variables),
                    "may_leave": self.plan.folder is None,
                    "deadline_s": None if self.deadline_s == float("inf") else self.deadline_s,
                    "environment": {**self._passed_variables, JOB_VARIABLE: self.token},
                    "address": address if is_ours and agent.node == 0 else own_address,
                    "orphans": [f"{JOB_VARIABLE}={token}" for token in self.orphans],
                    "folder": self.plan.folder,
                    "marker": "" if agent.line.is_shared else self._marker and self._marker.name,
                    "files": _files_to_send(self.plan.folder),
                    "ranks": [self._rank(rank, address, port) for rank in agent.ranks],
                }
            )

    def _meeting_place(self) -> tuple[str, str]:
        """Where the ranks meet: what the user said, else an address and a port of the first host.

        Our own address is the one that another host sees; empty where agents agree on it.
        """
        if not (first := self.agents[0].here):
            return "", ""
        seen = (agent.here.launcher_address for agent in self.agents[1:] if agent.here)
        ours = next(filter(None, seen), None) if first.launcher_address is None else None
        return ours or first.address, str(first.port)

    def _rank(self, rank: RankPlan, address: str, port: str) -> dict[str, Any]:
        variables = {n: v for n, v in rank.environment if n not in self._secrets}
        for name, value in ((_ADDRESS, address), (_PORT, port)):
            if variables.get(name) == "":
                variables[name] = value
        task = self.plan.task
        return {
            "rank": rank.rank,
            "argv": rank.argv,
            "environment": tuple(variables.items()),
            "cores": rank.cores,
            "log": rank.log,
            "result": task and str(Path(task.folder, result_file(rank.rank))),
            "shared_memory": shared_memory(rank),
        }

    def _keep(self, sender: JobAgent, name: str, data: str) -> None:
        """Write a rank's file where a rank of this machine would; signs reach the other hosts."""
        if self.plan.folder is None or not _NAME.fullmatch(name):
            return
        path = Path(self.plan.folder, name)
        new = path.with_name(f".{path.name}.new")
        with os.fdopen(open_private(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(base64.b64decode(data))
        new.replace(path)
        if path.parent.name == SIGNS_FOLDER:
            for agent in self.agents:
                if agent is not sender and not agent.has_ended:
                    agent.line.send({"file": name, "data": data})

    def _pass_end_on(self) -> None:
        """Pass on where running ranks are to end, which stands in a file of the trial's folder."""
        if self.plan.task is None or self.plan.task.most_steps is None or not self._was_sent:
            return
        with contextlib.suppress(OSError):
            told = Path(self.plan.task.folder, END_FILE).read_text()
            if told != self._told_end:
                self._told_end = told
                self.send({"file": END_FILE, "data": _text(told.encode())})

    def _finish(self) -> None:
        self._logs.close()
        for path, text in self.plan.private_files:
            write_private(Path(path), text)
        if self._marker is not None:
            self._marker.unlink(missing_ok=True)
        end = RanksEnd(
            exits=tuple(each for agent in self.agents for each in agent.exits()),
            terminated_unix_s=self._terminated_at_s(),
            cancelled=self.cancelled,
        )
        plan = self.plan
        self.end = JobEnd(
            exit_code=end.exit_code,
            outcome=None if plan.task is None else read_outcome(plan, end, self._logs.start),
            wall_s=time.monotonic() - self._started_s,
            lost_hosts=tuple(host for agent in self.agents for host in agent.lost_hosts),
        )

    def _terminated_at_s(self) -> float | None:
        """When the first rank was told to end, by us or by an agent, on our clock."""
        if any(agent.lost for agent in self.agents):
            return 0.0  # how the ranks of a lost host died is not known
        told = [self._terminated_unix_s] if self._terminated_unix_s else []
        for agent in self.agents:
            if agent.report and agent.report.terminated_unix_s:
                told.append(agent.report.terminated_unix_s - agent.clock_s)
        return min(told, default=None)


def _can_be_told(agent: JobAgent) -> bool:
    """Whether it has said what it is, or reads its order from a file whenever it begins."""
    return agent.here is not None or (agent.line.is_shared and not agent.line.awaits_all)


class HostsBackend:
    """Ranks on the hosts of a plan, reached as ``access`` says; not for several threads."""

    def __init__(
        self,
        access: RemoteAccess | None = None,
        *,
        linger_s: float = LINGER_S,
        grace_s: float = GRACE_S,
    ) -> None:
        self._access = access or RemoteAccess()
        self._linger_s, self._grace_s = linger_s, grace_s
        self._orphans: tuple[str, ...] = ()
        self.tell: Callable[[str], object] = lambda text: None
        """Hears what happened to launches from outside; see :func:`~.warn_listener`."""
        self.inform: Callable[[str], object] = lambda text: None
        """Hears once that a launch waits for hosts."""
        self._has_informed = False
        wake_on_signals()

    def submit(self, plan: LaunchPlan) -> HostsJob:
        """Start an agent on every host; each gets its ranks once all have answered.

        Raises:
            ConfigError: a host cannot be reached with this engine.
            OSError: the plan's folder cannot be written, or no process can be started.
        """
        variables, secrets = prepare_start(plan)
        hosts = plan.hosts or (LOCAL,)
        access = replace(self._access, step=plan.step)
        lines = open_lines(hosts, access, folder=plan.folder, secrets=secrets)
        job = make_job(plan, lines, variables, secrets)
        job.orphans = self._orphans
        return job

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        """The end of each job that has ended; the same one whenever asked again."""
        return tuple(map(self._look, map(hosts_job, jobs)))

    def _look(self, job: HostsJob) -> JobEnd | None:
        had_ended = job.end is not None
        end = job.look(self._linger_s, self._grace_s)
        if end is not None and not had_ended and job.plan.task is None:
            lost = (a.lost for a in job.agents if a.losses and not job.was_told_to_end)
            for why in dict.fromkeys(filter(None, lost)):
                self.tell(f"{why[0].upper()}{why[1:]}; the launch was ended.")
        if end is None and not self._has_informed and job.waited_s > UNSAID_WAIT_S:
            self._has_informed = True
            self.inform(wait_text(agent.line for agent in job.agents))
        return end

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        """Return when a line says something, something is due, a signal came, or time is up."""
        poller = select.poll()
        for job in map(hosts_job, jobs):
            if job.end is not None:
                return
            timeout_s = min(timeout_s, job.wake_s - time.monotonic())
            for agent in job.agents:
                if not agent.has_ended:
                    timeout_s = min(timeout_s, agent.line.look_every_s)
                if not agent.has_ended and agent.line.fileno() >= 0:
                    poller.register(agent.line, select.POLLIN)
        wake = wake_on_signals()
        poller.register(wake, select.POLLIN)
        ready = poller.poll(None if timeout_s == float("inf") else max(0.0, timeout_s) * 1e3)
        if any(descriptor == wake for descriptor, _ in ready):
            os.read(wake, 4096)

    def cancel(self, job: Job, reason: Failure) -> None:
        """Have the agents end the ranks; a failure or a full report from before now stands."""
        own = hosts_job(job)
        own.was_told_to_end = True
        if own.cancelled is None:
            own.cancelled = Cancelled(reason=reason, unix_s=time.time())
            own.due_s = time.monotonic() + self._grace_s + OBEYS_WITHIN_S
        own.send({"end": True})

    def send_signal(self, job: Job, number: int) -> None:
        """Pass a signal on to the ranks of all hosts; it ends a job that waits for hosts."""
        own = hosts_job(job)
        if own.is_queued:
            for agent in own.agents:
                agent.lost_code = -number
            waited = Failure(kind=FailureKind.PREEMPTED, detail="was ended before it had hosts")
            self.cancel(job, waited)
        own.send({"signal": int(number)})

    def end_orphan(self, handle: str, host: str) -> None:
        """Have agents that are started from here on end its ranks first, where any still live.

        On other hosts they end by themselves, ten silent seconds after their controller.
        """
        if re.fullmatch("[0-9a-f]{32}", handle):
            self._orphans = (*self._orphans, handle)


def hosts_job(job: Job) -> HostsJob:
    """A job as this backend made it.

    Raises:
        TypeError: it was submitted to another one.
    """
    if not isinstance(job, HostsJob):
        raise TypeError(f"job {job!r} was submitted to another backend.")
    return job


def make_job(
    plan: LaunchPlan,
    lines: Sequence[AgentLine],
    variables: Mapping[str, str],
    secrets: Collection[str],
) -> HostsJob:
    """A job over these lines; a line that is a folder's keeps ``secrets`` to itself."""
    agents = tuple(
        JobAgent(node, line, tuple(rank for rank in plan.ranks if rank.node == node))
        for node, line in enumerate(lines)
    )
    is_shared = any(line.is_shared for line in lines)
    return HostsJob(plan, agents, variables, secrets if is_shared else ())


def prepare_start(plan: LaunchPlan) -> tuple[dict[str, str], dict[str, str]]:
    """Make a plan's folder; what ranks get of our variables, and what of all is in no file.

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
    """What ranks on other hosts get of our environment."""
    return {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}


def _make_marker(folder: str | None, token: str) -> Path | None:
    """A file by which an agent sees that it shares the folder with us."""
    if folder is None:
        return None
    Path(folder).mkdir(parents=True, exist_ok=True)
    marker = Path(folder, f".shared-{token}")
    os.close(open_private(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    return marker


def _files_to_send(folder: str | None) -> dict[str, str]:
    """What the launcher has written for the ranks, where their host does not see our folder."""
    skipped = {STDOUT_LOG, STDERR_LOG}
    return {
        path.name: _text(path.read_bytes())
        for path in (sorted(Path(folder).iterdir()) if folder else ())
        if path.name not in skipped
        and _NAME.fullmatch(path.name)
        and not path.is_symlink()
        and path.is_file()
        and path.stat().st_size <= _MOST_SENT_BYTES
        and not path.name.startswith("result")
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
