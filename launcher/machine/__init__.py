"""This machine: its GPUs, cores, interpreters and names."""

from .conditions import Weather
from .cores import THREADS, cores_of_ranks, free_port, split_cores, usable_cores
from .devices import (
    as_device,
    available_memory_bytes,
    host_memory_bytes,
    visibility,
    visible_gpus,
)
from .gpus import BUS_ORDER, HIP_VISIBLE, ORDER, VISIBLE, Gpu, list_gpus, seen_at_once
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
from .this_machine import LOCAL, cpu_machine, is_cpu, is_this_machine, started_hosts
