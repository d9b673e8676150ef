"""The verb search: keys, model, candidates, jobs, runs."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

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
    from .local_runs import LocalRuns, require_transformers, stderr_view
    from .outcome import DoneRuns, outcome_of
    from .prepare import Prepared
    from .question import (
        SearchQuestion,
        batch_path,
        grid_question,
        section,
        with_data,
        with_facts,
    )
    from .settings import (
        ClusterKind,
        ClusterSettings,
        GridKind,
        PathSettings,
        SearchSettings,
        TrainSettings,
        is_whole,
        number,
        whole_number,
    )
    from .this_machine import require_room, split_runnable
else:
    __getattr__ = lazy_names(__name__, __file__)
