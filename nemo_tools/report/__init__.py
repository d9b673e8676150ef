"""Tables of a finished search."""

from .event_files import JOB_LOG, read_run
from .outcome import (
    NOT_STARTED,
    SearchOutcome,
    SearchRun,
    failure_kind,
    is_not_started,
    named_failure,
    without_impossible,
)
from .tables import (
    FINAL_RESULTS,
    NEMO2,
    summary_lines,
    top_text,
    write_final_results,
    write_nemo2_tables,
)
