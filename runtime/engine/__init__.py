"""The engine that a training script holds, from configuration to timed steps."""

from .config_file import ConfigSource
from .engine import Engine
from .start import initialize
