"""A tuning run: controller, trials and their files, playoff, winner."""

from .checkpoints import Checkpoints, watching_checkpoints
from .controller import Controller, TrialIO
from .endgame import Endgame, Search, play, said_by_probes, standings_of, with_outlook
from .job import TuningJob, as_script_starts, read_job, search_limits
from .plain_start import (
    OtherStartError,
    check_start,
    first_that_starts,
    job_crash,
    late_crash,
    recall_start,
)
from .prepared import (
    datasheet_times,
    find_model,
    find_past_times,
    known_refusal,
    make_study,
    open_space,
    remember_times,
    trial_time,
)
from .profile_run import ProfileFailedError, Site, read_measured, read_model_info, run_profile
from .running import BudgetSpentError, TimeBudget, TrialLimits
from .trial_io import TrialFiles, emulated_limit_bytes, impossible_flops, write_json
from .winner import render_winner, write_answer, write_results
