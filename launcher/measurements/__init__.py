"""Recorded measurements: tables, published runs, journals, and how predictions compare."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .row import MeasurementFile
    from .training_runs import TrainingRun, TrainingRuns, read_training_runs, row_to_fill
    from .validation import (
        Calibration,
        Fits,
        PredictedRow,
        Validation,
        calibration_of,
        score_files,
        suspected_unit,
        together,
    )
else:
    __getattr__ = lazy_names(__name__, __file__)
