"""The extension point LaunchEngine, which reaches hosts and runs plans on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from autoconf_launch.autotuner.space import Outcome
from autoconf_launch.core import Failure

from ..asked import ENGINES, EngineFacts
from ..events import Listener
from ..extension_points import find_reference, load_extension
from ..machine import Gpu
from ..plan import LaunchPlan, StepSize
from ..request import LaunchRequest, RemoteAccess

MOST_HOST_LOSSES = 2
"""Losses after which a host gets no more trials."""
UNSAID_WAIT_S = 10.0
"""Seconds of waiting for hosts that need no note: any queue takes a few."""


class Job(Protocol):
    """A submitted plan; each engine has its own kind."""

    @property
    def plan(self) -> LaunchPlan:
        """The plan as it was submitted."""

    @property
    def handle(self) -> str:
        """A name by which a later controller's engine finds it; empty if nothing can be left."""

    @property
    def is_queued(self) -> bool:
        """True while it waits for hosts, which does not count as time of the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """End of a job.

    Attributes:
        exit_code: code of the first rank that failed (128 + signal if a signal ended it), else 0.
        outcome: report of the ranks; None for a plan without a task.
        wall_s: time from submission to the end of the last process.
        lost_hosts: hosts whose failure ended it, twice if a host could not be reached again.
    """

    exit_code: int
    outcome: Outcome | None
    wall_s: float
    lost_hosts: tuple[str, ...] = ()


class Backend(Protocol):
    """Runs plans. Only ``wait`` blocks; every job ends, killed if need be."""

    def submit(self, plan: LaunchPlan) -> Job:
        """Start the plan's processes and return at once."""

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        """The end of each job, or None while any of its processes lives."""

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        """Return when a job has ended, a signal came, or the time is up."""

    def cancel(self, job: Job, reason: Failure) -> None:
        """End the job's processes; its outcome is then ``reason`` unless it had reported."""

    def send_signal(self, job: Job, number: int) -> None:
        """Pass a signal on to the job's ranks."""

    def end_orphan(self, handle: str, host: str) -> None:
        """Make sure that nothing is left of a job whose controller, on ``host``, has died.

        The job ends by itself, at once or before a later job could notice it.
        """

    def close(self) -> None:
        """End the processes that it keeps between jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSlots:
    """A host and the numbers of its slots, in the order of their ranks."""

    host: str
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDescription:
    """A host as its agent describes it.

    Attributes:
        host: its name in the launch.
        address: the address at which it was reached.
        launcher_address: our address as the host sees it; None if it cannot tell.
        cores: cores that processes can use there.
        memory_bytes: memory available to new processes.
        gpus: GPUs that CUDA would show there, in the order of ``nvidia-smi``.
    """

    host: str
    address: str
    launcher_address: str | None
    cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...]


class LaunchEngine(EngineFacts, Backend, Protocol):
    """Reaches hosts and runs plans on them.

    It is made as ``TheEngine(access, listener=..., deadline_s=...)``: how the user reaches hosts,
    the receiver of notes on launches (may be None), and the longest run of a queued trial.
    Subclasses override the defaults here and in :class:`~..asked.EngineFacts`.
    """

    def find_hosts(self, request: LaunchRequest) -> tuple[HostSlots, ...] | None:
        """The hosts that the engine itself has for a launch; None: the user names them."""
        return None

    def describe_hosts(self, hosts: tuple[str, ...]) -> tuple[HostDescription, ...]:
        """Have each host describe itself, before any rank is started there.

        Raises:
            ConfigError: the engine is not installed.
            HardwareError: a host cannot be reached, or has other versions than this one.
        """

    def step_size(self, gpus: int, part: float) -> StepSize | None:
        """Cores and GPUs of each host that it reserves for a trial; None: it divides no host.

        ``gpus`` of a host and ``part`` of its slots are the trial's share there.
        """
        return None

    def launch_text(self, request: LaunchRequest) -> str:
        """The objects that it would make for a launch; see ``prints_launches``."""
        return ""

    def close(self) -> None:
        """End nothing: nothing is kept."""
        return


def make_engine(
    access: RemoteAccess, listener: Listener | None = None, *, deadline_s: float = math.inf
) -> LaunchEngine:
    """Make the engine that ``--launcher`` names; nothing waits for the imports of another.

    Raises:
        ConfigError: no engine has this name.
    """
    reference = find_reference("engine", ENGINES, access.engine, where="--launcher")

    def make(kind: Any) -> Any:
        return kind(access, listener=listener, deadline_s=deadline_s)

    made = load_extension("engine", reference, make, "(access, *, listener, deadline_s)")
    return cast(LaunchEngine, made)
