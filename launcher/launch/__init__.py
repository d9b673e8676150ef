"""From a request to a launch plan, and from ended ranks to an outcome."""

from .outcome import (
    Cancelled,
    RankExit,
    RanksEnd,
    adopt,
    how_it_died,
    read_outcome,
    signal_name,
)
from .planning import (
    early_variables,
    forked_imports,
    in_training,
    in_trial,
    plan_launch,
    probe_environment,
    variables_of_user,
    why_silent,
)
from .rank_results import (
    STDERR_LOG,
    STDOUT_LOG,
    Compiled,
    LogStart,
    compile_time,
    file_tail,
    is_beside_steps,
    printed_error,
    read_log_tail,
    started_ranks,
)
from .script_source import find_script_source, find_source, read_script
from .wrapped_launch import as_typed, unwrap_launcher
