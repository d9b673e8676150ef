"""What ``doctor`` measures of hosts, what is wrong with them, and how it says so."""

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
