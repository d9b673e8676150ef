"""Phases of a verification run besides its steps."""

from .asides import Beside
from .training_data import Longest, TrainingData
