"""Results of a search: values, tables and sentences."""

from .event_files import JOB_LOG, read_run
from .outcome import (
    NOT_STARTED,
    SearchOutcome,
    SearchRun,
    digits_of,
    is_not_started,
    named_failure,
    round_figure,
    without_impossible,
)
from .sentences import (
    extrapolation,
    first_rows,
    nothing_measured,
    prediction_line,
    serving_lines,
    summary_lines,
    top_text,
    why_not_served,
)
from .serving import (
    POINTS,
    Columns,
    InferenceRun,
    SearchPoint,
    analysis_log,
    configs_csv,
    final_csv,
    nearest_run,
    not_run,
    order_runs,
    pareto_csv,
    recommend_runs,
    serving_documents,
)
from .tables import (
    CANDIDATES,
    FINAL_RESULTS,
    NEMO1_FAILED,
    NEMO1_SUMMARY,
    NEMO2,
    NEMO2_FAILED,
    NEMO2_SUMMARY,
    config_name,
    failed_csv,
    run_documents,
    summary_csv,
    write_final_results,
    write_nemo2_tables,
)
