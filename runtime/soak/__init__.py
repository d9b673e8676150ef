"""Phases of a verification run besides its steps."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .asides import Beside
    from .training_data import Longest, TrainingData
else:
    __getattr__ = lazy_names(__name__, __file__)
