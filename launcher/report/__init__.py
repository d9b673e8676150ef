"""All sentences and tables that people read."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .cells import (
        TF32_SWITCH,
        csv_text,
        duration_text,
        format_gains_text,
        label,
        launch_label,
        memory_size,
        memory_unit,
        minutes_text,
        number_text,
        range_text,
        save_file,
        save_text,
        seconds_text,
        shown_name,
        size_text,
        step_text,
        step_time_text,
        table_of,
        write_csv,
    )
    from .columns import (
        RULES_IN_WORDS,
        WaterfallStep,
        measured_waterfall,
        nodes_text,
        predicted_waterfall,
        step_waterfall,
    )
    from .doctor import (
        blocked_text,
        cluster_document,
        cluster_file,
        doctor_document,
        doctor_lines,
        problems,
        require_gpus,
    )
    from .fit import (
        fit_document,
        fit_text,
        host_limit_text,
        rooms_table,
        script_document,
        script_text,
        why_not_fit,
    )
    from .measurements import (
        problem_lines,
        row_lines,
        rows_csv,
        unit_warnings,
        validation_document,
        validation_lines,
    )
    from .plan import plan_csv, plan_document, plan_json, plan_text
    from .plan_reasons import cluster_text, name_of, why_nothing
    from .progress import (
        best_text,
        clock_text,
        failure_lines,
        hidden_rows_text,
        log_lines,
        no_second_profile_text,
        no_time_for_ranks_text,
        no_trial_text,
        phase_text,
        planned_tune_text,
        profile_cut_text,
        profile_line,
        room_text,
        round_line,
        space_line,
        standing_text,
        started_line,
        step_line,
        trial_line,
    )
    from .recommend import recommend_document, recommend_text
    from .results import (
        HEADERS,
        TRIAL_COLUMNS,
        RowKind,
        TrialRow,
        comparison_document,
        comparison_text,
        conclusion,
        different_trainings_text,
        finished_row,
        headlines,
        results_answer,
        results_document,
        results_text,
        running_row,
        trial_document,
        trial_rows,
        trials_csv,
    )
    from .search import bound_text, crash_text, lack_of_time_text, refused_text, stop_sentence
    from .serving import (
        fit_inference_document,
        fit_inference_text,
        plan_inference_document,
        plan_inference_text,
        why_not_within,
    )
    from .spaces import KnobRow, SpacesAnswer, StageView, spaces_document, spaces_text
    from .summary import (
        SCHEMA_VERSION,
        details_text,
        result_text,
        summary_document,
        summary_text,
        table_text,
    )
    from .tables import Column, csv_rows, each, rows_documents, rows_text
else:
    __getattr__ = attach(
        __name__,
        {
            ".cells": (
                "TF32_SWITCH csv_text duration_text format_gains_text label launch_label "
                "memory_size memory_unit minutes_text number_text range_text save_file "
                "save_text seconds_text shown_name size_text step_text step_time_text table_of "
                "write_csv"
            ),
            ".columns": (
                "RULES_IN_WORDS WaterfallStep measured_waterfall nodes_text predicted_waterfall "
                "step_waterfall"
            ),
            ".doctor": (
                "blocked_text cluster_document cluster_file doctor_document doctor_lines problems "
                "require_gpus"
            ),
            ".fit": (
                "fit_document fit_text host_limit_text rooms_table script_document script_text "
                "why_not_fit"
            ),
            ".measurements": (
                "problem_lines row_lines rows_csv unit_warnings validation_document "
                "validation_lines"
            ),
            ".plan": "plan_csv plan_document plan_json plan_text",
            ".plan_reasons": "cluster_text name_of why_nothing",
            ".progress": (
                "best_text clock_text failure_lines hidden_rows_text log_lines "
                "no_second_profile_text no_time_for_ranks_text no_trial_text phase_text "
                "planned_tune_text profile_cut_text profile_line room_text round_line "
                "space_line standing_text started_line step_line trial_line"
            ),
            ".recommend": "recommend_document recommend_text",
            ".results": (
                "HEADERS TRIAL_COLUMNS RowKind TrialRow comparison_document comparison_text "
                "conclusion different_trainings_text finished_row headlines results_answer "
                "results_document results_text running_row trial_document trial_rows trials_csv"
            ),
            ".search": "bound_text crash_text lack_of_time_text refused_text stop_sentence",
            ".serving": (
                "fit_inference_document fit_inference_text plan_inference_document "
                "plan_inference_text why_not_within"
            ),
            ".spaces": "KnobRow SpacesAnswer StageView spaces_document spaces_text",
            ".summary": (
                "SCHEMA_VERSION details_text result_text summary_document summary_text table_text"
            ),
            ".tables": "Column csv_rows each rows_documents rows_text",
        },
    )
