"""The hosts of a launch: slots and devices, shares of them, and the engine that starts it."""

from .choice import names_hosts, pod_text, require_one_start
from .cluster import find_cluster, local_cluster
from .pools import engine_for, find_pool, pool_text, trial_engine
from .slots import (
    WHOLE,
    Placement,
    Share,
    Size,
    SlotPool,
    why_not_in_turn,
)
