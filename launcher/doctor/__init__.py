"""What ``doctor`` measures of hosts, what is wrong with them, and how it says so."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .checks import BlockedPort, HostChecks, LinkCheck, SlotCheck, read_blocked, read_checks
    from .gpus import GpuCheck
    from .text import (
        blocked_text,
        cluster_document,
        doctor_document,
        doctor_lines,
        problems,
        require_gpus,
    )
else:
    __getattr__ = lazy_names(__name__, __file__)
