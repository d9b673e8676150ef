"""From machines, days and tokens to a model, its base configuration and NVIDIA's grids."""

from .base_documents import (
    BaseConfig,
    RunPlan,
    base_config,
    custom_document,
    nemo1_document,
    recipe_document,
    run_name,
    time_limit,
)
from .base_reader import (
    RECIPE_PATHS,
    BatchSplit,
    Pretraining,
    RateSchedule,
    TrainedModel,
    builtin_document,
    pretraining,
)
from .chosen_model import (
    BaseBatch,
    BatchRow,
    ChosenModel,
    ModelQuestion,
    Tables,
    base_batch,
    choose_model,
    counted_model,
    nvidias_shape_note,
)
from .families import (
    Family,
    NamedModel,
    Predefined,
    Rules,
    family_named,
    nearest_predefined,
    parse_model_name,
)
from .forecast import (
    WHY,
    Achieved,
    Goodput,
    GpuPrice,
    Outlook,
    PublishedSpeed,
    Sensitivity,
    SpeedBand,
    Task,
    achieved_speed,
    by_effect,
    log_width,
    narrow_band,
    near_layouts,
    outlook,
    speed_band,
    with_assumption,
)
from .model_size import (
    SECONDS_PER_DAY,
    Budget,
    SampleShape,
    exact_training_days,
    gpus_for_days,
    least_step_flops,
    recommended_size_b,
    size_for_days,
    step_flops,
    training_days,
)
from .nemo_axes import (
    BLOCK,
    Grid,
    GridQuestion,
    GridRow,
    NoRule,
    RecomputeChoices,
    nemo_grid,
    recompute_choices,
)
from .search_space import are_ends_counted, reason, run_order, search_rules
from .shapes import (
    Form,
    Shape,
    ShapeRow,
    architecture,
    form_of,
    form_of_model,
    nemo_parameters_b,
    row_near,
    runs_flash,
    shape_of_model,
)
