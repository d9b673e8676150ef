"""Recorded measurements: tables, published runs, journals, and how predictions compare."""

from .row import MeasurementFile
from .training_runs import TrainingRuns, read_training_runs, row_to_fill
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
