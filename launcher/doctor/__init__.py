"""What ``doctor`` measures of hosts, what is wrong with them, and how it says so."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .checks import HostChecks, LinkCheck, SlotCheck, read_checks
    from .text import cluster_document, doctor_document, doctor_lines, problems
else:
    __getattr__ = lazy_names(__name__, __file__)
