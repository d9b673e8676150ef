"""The verb search: keys, model, candidates, jobs, runs."""

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
from .hp_search import HpRuns, HpSearch, opening_runs
from .jobs import (
    SHEBANG,
    SlurmJob,
    cluster_options,
    container_flags,
    sbatch_text,
    search_mounts,
    submit_all_text,
)
from .local_runs import LocalRuns, require_transformers, stderr_view
from .outcome import DoneRuns, outcome_of, question_outcome
from .prepare import (
    Prepared,
    check_paths,
    first_rows,
    json_document,
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
from .settings import (
    WHOLE_NUMBER,
    ClusterKind,
    ClusterSettings,
    GridKind,
    InferenceSettings,
    PathSettings,
    SearchSettings,
    SettingUnit,
    TrainSettings,
    is_whole,
    units_of,
    whole_from,
)
from .this_machine import local_ranks, local_request, require_room, split_runnable
from .training_search import search_training
