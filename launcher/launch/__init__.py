"""From a request to a launch plan, and from ended ranks to an outcome."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .external import (
        as_script_expects,
        config_stem,
        in_training,
        in_trial,
        told,
        with_declared_local_rank,
        write_files,
    )
    from .outcome import (
        STDERR_LOG,
        STDOUT_LOG,
        Cancelled,
        LogStart,
        RankExit,
        RanksEnd,
        adopt,
        file_tail,
        how_it_died,
        read_log_tail,
        read_outcome,
        signal_name,
    )
    from .planning import plan_launch, require_script
    from .probe_variables import deaf_flag, probe_environment, why_silent
    from .rank_results import is_beside_steps, started_ranks
    from .script_source import find_script_source, find_source, refuse_own_flags
    from .wrapped_launch import unwrapped
else:
    __getattr__ = lazy_names(__name__, __file__)
