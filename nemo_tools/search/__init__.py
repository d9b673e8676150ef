"""The verb search: keys, model, candidates, jobs, runs."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .candidate_file import (
        SearchFolder,
        candidate_document,
        layout_edits,
        run_edits,
        training_document,
        write_documents,
    )
    from .candidates import (
        CandidateList,
        SearchCandidate,
        candidates_of,
        gpu_peak_flops_per_s,
        search_machines,
        searched_model,
    )
    from .flags import SearchRequest, parse_search
    from .inference_settings import InferenceSettings
    from .jobs import (
        SHEBANG,
        SlurmJob,
        cluster_options,
        container_flags,
        sbatch_text,
        search_mounts,
    )
    from .local_runs import LocalRuns, require_transformers, stderr_view
    from .outcome import DoneRuns, outcome_of
    from .prepare import (
        SEARCH_SCHEMA_VERSION,
        Prepared,
        check_paths,
        prepare_training,
        refusal_note,
    )
    from .question import (
        SearchQuestion,
        batch_path,
        grid_question,
        section,
        with_data,
        with_facts,
    )
    from .reader import is_whole, number, whole_number
    from .settings import (
        ClusterKind,
        ClusterSettings,
        GridKind,
        PathSettings,
        SearchSettings,
        TrainSettings,
    )
    from .this_machine import local_ranks, local_request, require_room, split_runnable
    from .training_search import search_training
else:
    __getattr__ = attach(
        __name__,
        {
            ".candidate_file": (
                "SearchFolder candidate_document layout_edits run_edits training_document "
                "write_documents"
            ),
            ".candidates": (
                "CandidateList SearchCandidate candidates_of gpu_peak_flops_per_s "
                "search_machines searched_model"
            ),
            ".flags": "SearchRequest parse_search",
            ".inference_settings": "InferenceSettings",
            ".jobs": "SHEBANG SlurmJob cluster_options container_flags sbatch_text search_mounts",
            ".local_runs": "LocalRuns require_transformers stderr_view",
            ".outcome": "DoneRuns outcome_of",
            ".prepare": "SEARCH_SCHEMA_VERSION Prepared check_paths prepare_training refusal_note",
            ".question": "SearchQuestion batch_path grid_question section with_data with_facts",
            ".reader": "is_whole number whole_number",
            ".settings": (
                "ClusterKind ClusterSettings GridKind PathSettings SearchSettings TrainSettings"
            ),
            ".this_machine": "local_ranks local_request require_room split_runnable",
            ".training_search": "search_training",
        },
    )
