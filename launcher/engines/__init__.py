"""Engines reach hosts and run plans there; each is one file, imported when a launch needs it."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

from .base import (
    MOST_HOST_LOSSES,
    UNSAID_WAIT_S,
    Backend,
    HostDescription,
    HostSlots,
    Job,
    JobEnd,
    LaunchEngine,
    make_engine,
)

if TYPE_CHECKING:
    from .fork_server import ForkServerEngine
    from .line import wait_text
    from .local import LocalEngine, LocalJob
    from .slurm import JOB_ID, SlurmQueue, cancel_jobs, is_slurm_here, pending_text, submit_job
else:
    __getattr__ = attach(
        __name__,
        {
            ".fork_server": "ForkServerEngine",
            ".line": "wait_text",
            ".local": "LocalEngine LocalJob",
            ".slurm": "JOB_ID SlurmQueue cancel_jobs is_slurm_here pending_text submit_job",
        },
    )
