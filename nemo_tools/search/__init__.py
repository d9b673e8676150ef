"""The verb search: keys, model, candidates, jobs, runs."""

from .candidate_file import (
    SearchFolder,
    candidate_document,
    layout_edits,
    run_edits,
    training_document,
)
from .candidates import (
    CandidateList,
    Rejected,
    SearchCandidate,
    candidates_of,
    gpu_peak_flops_per_s,
    search_machines,
    searched_model,
)
from .hp_search import HpRuns, HpSearch, OpenRuns, RunLimits, Runner, opening_launches
from .job_runs import (
    NEVER_S,
    SLURM_SPARE_S,
    JobQueue,
    JobRunner,
    are_run_here,
    collect_jobs,
    open_queue,
    run_jobs,
)
from .jobs import job_script, submit_all_text
from .our_ranks import OurRanks, require_transformers, stderr_view
from .outcome import measured_run, outcome_of, question_outcome
from .prepare import Prepared, check_paths, prepare_training
from .question import (
    GridKind,
    SearchQuestion,
    SearchScope,
    batch_path,
    grid_question,
    section,
    whose_grid,
    with_data,
    with_facts,
)
from .settings import (
    POSITIVE,
    WHOLE_NUMBER,
    ClusterKind,
    ClusterSettings,
    InferenceSettings,
    SearchSettings,
    SettingUnit,
    is_whole,
    whole_from,
)
from .this_machine import local_ranks, local_request, require_room, split_runnable
from .training_search import HalfAnswer, TrainingHalf
