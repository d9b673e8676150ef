"""Recorded measurements: tables, published runs, journals, and how predictions compare."""

from .landscapes import LandscapeFile, read_landscapes
from .row import MeasurementFile, parse_group_by
from .training_runs import TrainingRun, TrainingRuns, read_training_runs, row_to_fill
from .validation import (
    Calibration,
    PredictedRow,
    Validation,
    calibration_of,
    score_files,
    suspected_unit,
    together,
)
