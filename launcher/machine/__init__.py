"""The machine at hand: hosts, slots, cores, GPUs, interpreters."""

from .conditions import Weather
from .cores import cores_of_ranks, free_port, split_cores, usable_cores
from .discover import find_cluster, started_hosts
from .hosts import names_hosts, pod_text, require_one_start
from .interpreters import (
    OUR_COMMAND,
    audible,
    deaf_flag,
    other_python,
    our_python,
    python_beside,
    python_of,
    read_environment_files,
    split_python_flags,
)
from .pools import find_pool, pool_text
from .slots import (
    ALONE,
    MOST_HOST_LOSSES,
    THREADS,
    WHOLE,
    Placement,
    Share,
    Size,
    SlotPool,
    visibility,
    why_not_in_turn,
)
from .this_machine import cpu_machine, is_cpu, local_cluster
