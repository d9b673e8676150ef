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
    from .folder_line import FolderLine
    from .fork_server import ForkServerEngine, early_fork_server
    from .hosts_job import HostsJob
    from .line import HostLine, wait_text
    from .local import LocalEngine, LocalJob
    from .over_hosts import GroupEngine, HostsEngine, PipeEngine, QueuedEngine
    from .slurm import JOB_ID, SlurmQueue, cancel_jobs, is_slurm_here, pending_text, submit_job
    from .ssh import SshEngine
else:
    __getattr__ = attach(
        __name__,
        {
            ".fork_server": "ForkServerEngine early_fork_server",
            ".folder_line": "FolderLine",
            ".hosts_job": "HostsJob",
            ".line": "HostLine wait_text",
            ".local": "LocalEngine LocalJob",
            ".over_hosts": "GroupEngine HostsEngine PipeEngine QueuedEngine",
            ".slurm": "JOB_ID SlurmQueue cancel_jobs is_slurm_here pending_text submit_job",
            ".ssh": "SshEngine",
        },
    )
