"""Every layout of a model on equal machines: ruled out or priced, and the best of them."""

from .bands import (
    MeasuredGroup,
    StepBand,
    Traits,
    planned_band,
    step_band,
    time_band,
)
from .best_points import MEMORY, PointQuestion, Points, points
from .explanation import (
    Loser,
    losers,
)
from .gpu_count import GpuCount, fewest_gpus
from .layout_family import family_name, is_short_for_context
from .mesh_grids import PLAN_RULES, count_layouts, grids, rule_mask
from .own_runs import OwnRuns, cut_model, is_same_model, predicted_steps_s
from .runnable import RUNTIME_RULES, plan_only_by
from .search import (
    Limits,
    Plan,
    Planned,
    Question,
    StagePlan,
    Training,
    plan,
    tightest_stage,
)
from .trainer_choice import choose_trainer, schedule_rules, trainer_rules
from .usable_rows import (
    NearestChange,
    leading,
    lighter_trainings,
    nearest_changes,
    plan_usable_first,
    shorter_trainings,
)
from .verification import (
    RUN_STEPS,
    Bounds,
    RunCosts,
    SmallerRun,
    Verification,
    VerifyingRun,
    near_rivals,
    verifying_runs,
)
