"""The extension point Backend: what runs plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autoconf_launch.autotuner.space import Outcome
from autoconf_launch.core import Failure

from ..plan import LaunchPlan


class Job(Protocol):
    """A handle of one submitted plan; a backend hands out its own kind."""

    @property
    def plan(self) -> LaunchPlan:
        """What was submitted."""

    @property
    def handle(self) -> str:
        """By which the backend of a later controller finds it; empty where nothing can be left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a job ended.

    Attributes:
        exit_code: of the first rank that failed (128 + signal where one ended it), else 0.
        outcome: what the ranks reported; None for a plan without a task.
        wall_s: from submission to the end of the last process.
        lost_hosts: whose failure ended it; twice the same where it could not be reached anew.
    """

    exit_code: int
    outcome: Outcome | None
    wall_s: float
    lost_hosts: tuple[str, ...] = ()


class Backend(Protocol):
    """Runs plans. No method blocks but ``wait``; every job ends, killed if need be."""

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
        """See that nothing is left of a job whose controller, on ``host``, has died.

        It ends by itself, at once or before a later job could notice it.
        """
