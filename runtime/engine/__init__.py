"""The engine that a training script holds, from configuration to timed steps."""

from .engine import ConfigSource, Engine, initialize
