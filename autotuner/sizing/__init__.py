"""From machines, days and tokens to a model, its base configuration and NVIDIA's grids."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .base_reader import RECIPE_PATHS, pretraining
    from .base_values import (
        BaseConfig,
        Pretraining,
        RateSchedule,
        RunPlan,
        TrainedModel,
        base_config,
        run_name,
        time_limit,
    )
    from .batch_size import BaseBatch, BatchQuestion, BatchRow, base_batch
    from .chosen_model import ChosenModel, ModelQuestion, Tables, choose_model, counted_model
    from .families import Family, Rules, family_named
    from .forecast import (
        WHY,
        Achieved,
        Assumed,
        Goodput,
        GpuPrice,
        Outlook,
        PublishedSpeed,
        Task,
        achieved,
        changed,
        outlook,
        size_for_days,
        speed_band,
    )
    from .layouts import builtin_document, custom_document, nemo1_document, recipe_document
    from .model_size import (
        SECONDS_PER_DAY,
        Budget,
        NamedModel,
        SampleShape,
        exact_training_days,
        named,
        recommended_size_b,
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
        RecomputeQuestion,
        nemo_grid,
        recompute_choices,
    )
    from .nemo_rules import are_ends_counted, reason, search_rules
    from .promise import Predefined, nearest_predefined, run_order
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
    )
else:
    __getattr__ = lazy_names(__name__, __file__)
